//! Counters: table `jfs_counter`.

use async_trait::async_trait;
use rusqlite::params;

use super::Sqlite;
use super::db::Db;
use super::fault::Outcome;
use super::row::Columns;
use crate::error::Result;
use crate::meta::engine::CounterRecords;
use crate::meta::record::Counter;

/// The rows of a fresh volume. The first inode and slice ids are free; 1 is the root's.
pub const INITIAL: [(&str, i64); 6] = [
    ("nextInode", 2),
    ("nextChunk", 1),
    ("nextSession", 0),
    ("usedSpace", 0),
    ("totalInodes", 0),
    ("nextCleanupSlices", 0),
];

#[async_trait]
impl CounterRecords for Sqlite {
    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64> {
        self.link.change(move |db| add(db, counter, by)).await
    }

    async fn counter(&self, counter: Counter) -> Result<i64> {
        self.link.read(move |db| value(db, counter)).await
    }

    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        self.link.change(move |db| claim(db, counter, now, gap)).await
    }
}

pub fn value(db: &Db, counter: Counter) -> Outcome<i64> {
    let sql = "SELECT value FROM jfs_counter WHERE name = ?1";
    let name = name(counter);
    let found = db.one(sql, [name], |row| {
        Columns::new(row, &format_args!("table counter, name {name}")).signed(0)
    })?;
    Ok(found.unwrap_or(0))
}

/// Adds and answers the new value. A missing row counts as 0.
pub fn add(db: &Db, counter: Counter, by: i64) -> Outcome<i64> {
    let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = value + ?2 RETURNING value";
    let name = name(counter);
    let now = db.one(sql, params![name, by], |row| {
        Columns::new(row, &format_args!("table counter, name {name}")).signed(0)
    })?;
    Ok(now.unwrap_or(by))
}

pub fn insert(db: &Db, name: &str, value: i64) -> Outcome<()> {
    let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    db.exec(sql, params![name, value])?;
    Ok(())
}

/// Stores `now` unless the stored time is later than `now - gap`; answers whether it did.
pub fn claim(db: &Db, counter: Counter, now: i64, gap: i64) -> Outcome<bool> {
    if value(db, counter)? > now.saturating_sub(gap) {
        return Ok(false);
    }
    let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = ?2";
    db.exec(sql, params![name(counter), now])?;
    Ok(true)
}

fn name(counter: Counter) -> &'static str {
    match counter {
        Counter::UsedSpace => "usedSpace",
        Counter::TotalInodes => "totalInodes",
        Counter::NextInode => "nextInode",
        Counter::NextChunk => "nextChunk",
        Counter::NextSession => "nextSession",
        Counter::NextTrash => "nextTrash",
        Counter::AclMaxId => "aclMaxId",
        Counter::LastCleanupSessions => "lastCleanupSessions",
        Counter::LastCleanupFiles => "lastCleanupFiles",
        Counter::NextCleanupSlices => "nextCleanupSlices",
        Counter::LastCleanupTrash => "lastCleanupTrash",
        Counter::LastCleanupChangelog => "lastCleanupChangelog",
    }
}
