//! Counters: table `jfs_counter`.

use async_trait::async_trait;
use rusqlite::params;

use crate::error::Result;
use crate::meta::engine::CounterRecords;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::record::Counter;

/// The rows of a new volume. The root has inode 1, and slice 0 means a hole.
pub const INITIAL: [(&str, i64); 6] = [
    ("nextInode", 2),
    ("nextChunk", 1),
    ("nextSession", 0),
    ("usedSpace", 0),
    ("totalInodes", 0),
    ("nextCleanupSlices", 0),
];

#[async_trait]
impl CounterRecords for SqliteEngine {
    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64> {
        self.connections.write(move |db| add(db, counter, by)).await
    }

    async fn counter(&self, counter: Counter) -> Result<i64> {
        self.connections.read(move |db| value(db, counter)).await
    }

    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        self.connections.write(move |db| claim(db, counter, now, gap)).await
    }
}

fn value(db: &Db, counter: Counter) -> DbResult<i64> {
    let sql = "SELECT value FROM jfs_counter WHERE name = ?1";
    let name = counter.name();
    let found = db.one(sql, [name], |row| {
        Columns::new(row, &format_args!("table counter, name {name}")).signed(0)
    })?;
    Ok(found.unwrap_or(0))
}

/// Adds and returns the new value. A missing row counts as 0.
pub fn add(db: &Db, counter: Counter, by: i64) -> DbResult<i64> {
    let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = value + ?2 RETURNING value";
    let name = counter.name();
    let now = db.one(sql, params![name, by], |row| {
        Columns::new(row, &format_args!("table counter, name {name}")).signed(0)
    })?;
    Ok(now.unwrap_or(by))
}

pub fn insert(db: &Db, name: &str, value: i64) -> DbResult<()> {
    let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    db.exec(sql, params![name, value])?;
    Ok(())
}

/// Stores `now` unless the stored time is later than `now - gap`. Returns whether it did.
fn claim(db: &Db, counter: Counter, now: i64, gap: i64) -> DbResult<bool> {
    if value(db, counter)? > now.saturating_sub(gap) {
        return Ok(false);
    }
    let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = ?2";
    db.exec(sql, params![counter.name(), now])?;
    Ok(true)
}
