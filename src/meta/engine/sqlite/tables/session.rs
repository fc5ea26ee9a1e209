//! Sessions: tables `jfs_session2` and `jfs_sustained`, and `jfs_session` of old clients.

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::lock;
use crate::error::Result;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::engine::{HeldLock, SessionRecords, StoredSession};
use crate::meta::{Ino, Sid};

/// Old clients store the time of their last heartbeat. Their sessions last this many seconds
/// longer.
const LEGACY_TIMEOUT: i64 = 300;

#[async_trait]
impl SessionRecords for SqliteEngine {
    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        let info = info.to_vec();
        self.connections.write(move |db| put(db, sid, expire, &info)).await
    }

    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        self.connections.write(move |db| extend(db, sid, expire)).await
    }

    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        self.connections.read(move |db| one(db, sid)).await
    }

    async fn sessions(&self) -> Result<Vec<StoredSession>> {
        self.connections.read(|db| db.snapshot(|| all(db))).await
    }

    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        self.connections.read(move |db| stale(db, now, limit)).await
    }

    async fn release_locks(&self, sid: Sid) -> Result<()> {
        self.connections.write(move |db| lock::release(db, sid)).await
    }

    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        self.connections.read(move |db| db.snapshot(|| lock::held(db, sid))).await
    }

    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>> {
        self.connections.read(move |db| sustained(db, sid)).await
    }

    async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.connections.write(move |db| remove(db, sid)).await
    }
}

fn put(db: &Db, sid: Sid, expire: i64, info: &[u8]) -> DbResult<()> {
    let sql = "INSERT INTO jfs_session2 (sid, expire, info) VALUES (?1, ?2, ?3) \
               ON CONFLICT (sid) DO UPDATE SET expire = ?2, info = ?3";
    db.exec(sql, params![sid, expire, info])?;
    Ok(())
}

/// Returns false if the session does not exist.
fn extend(db: &Db, sid: Sid, expire: i64) -> DbResult<bool> {
    let sql = "UPDATE jfs_session2 SET expire = ?2 WHERE sid = ?1";
    Ok(db.exec(sql, params![sid, expire])? > 0)
}

fn one(db: &Db, sid: Sid) -> DbResult<Option<StoredSession>> {
    let sql = "SELECT sid, expire, info FROM jfs_session2 WHERE sid = ?1";
    if let Some(found) = db.one(sql, [sid], |row| stored(row, 0))? {
        return Ok(Some(found));
    }
    if !has_legacy(db)? {
        return Ok(None);
    }
    let sql = "SELECT sid, heartbeat, info FROM jfs_session WHERE sid = ?1";
    db.one(sql, [sid], |row| stored(row, LEGACY_TIMEOUT))
}

fn all(db: &Db) -> DbResult<Vec<StoredSession>> {
    let sql = "SELECT sid, expire, info FROM jfs_session2 ORDER BY sid";
    let mut found = db.all(sql, [], |row| stored(row, 0))?;
    if has_legacy(db)? {
        let sql = "SELECT sid, heartbeat, info FROM jfs_session ORDER BY sid";
        found.extend(db.all(sql, [], |row| stored(row, LEGACY_TIMEOUT))?);
    }
    Ok(found)
}

fn stale(db: &Db, now: i64, limit: usize) -> DbResult<Vec<Sid>> {
    let rows = |taken: usize| i64::try_from(limit - taken).unwrap_or(i64::MAX);
    let sql = "SELECT sid FROM jfs_session2 WHERE expire < ?1 LIMIT ?2";
    let mut found = db.all(sql, params![now, rows(0)], sid_at)?;
    if found.len() < limit && has_legacy(db)? {
        let sql = "SELECT sid FROM jfs_session WHERE heartbeat < ?1 LIMIT ?2";
        let silent = now.saturating_sub(LEGACY_TIMEOUT);
        found.extend(db.all(sql, params![silent, rows(found.len())], sid_at)?);
    }
    Ok(found)
}

fn remove(db: &Db, sid: Sid) -> DbResult<()> {
    db.exec("DELETE FROM jfs_session2 WHERE sid = ?1", [sid])?;
    if has_legacy(db)? {
        db.exec("DELETE FROM jfs_session WHERE sid = ?1", [sid])?;
    }
    Ok(())
}

/// Returns the inodes that the session keeps alive although they have no name any more.
fn sustained(db: &Db, sid: Sid) -> DbResult<Vec<Ino>> {
    let sql = "SELECT inode FROM jfs_sustained WHERE sid = ?1 ORDER BY inode";
    db.all(sql, [sid], |row| Columns::new(row, &"table sustained").ino(0))
}

pub fn sustains(db: &Db, sid: Sid, ino: Ino) -> DbResult<bool> {
    let sql = "SELECT 1 FROM jfs_sustained WHERE sid = ?1 AND inode = ?2";
    Ok(db.one(sql, params![sid, ino], |_| Ok(()))?.is_some())
}

pub fn add_sustained(db: &Db, sid: Sid, ino: Ino) -> DbResult<()> {
    let sql = "INSERT INTO jfs_sustained (sid, inode) VALUES (?1, ?2) \
               ON CONFLICT (sid, inode) DO NOTHING";
    db.exec(sql, params![sid, ino])?;
    Ok(())
}

pub fn remove_sustained(db: &Db, sid: Sid, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_sustained WHERE sid = ?1 AND inode = ?2", params![sid, ino])?;
    Ok(())
}

fn has_legacy(db: &Db) -> DbResult<bool> {
    db.has_table("jfs_session")
}

fn stored(row: &Row<'_>, timeout: i64) -> DbResult<StoredSession> {
    let sid = sid_at(row)?;
    let of = format_args!("session {sid}");
    let columns = Columns::new(row, &of);
    let expire = columns.signed(1)?.saturating_add(timeout);
    Ok(StoredSession { sid, expire, info: columns.bytes(2)?.to_vec() })
}

fn sid_at(row: &Row<'_>) -> DbResult<Sid> {
    Ok(Sid(Columns::new(row, &"sessions").unsigned(0)?))
}
