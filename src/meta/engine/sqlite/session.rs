//! Sessions: `jfs_session2`, the table `jfs_session` of old clients, and `jfs_sustained`.

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::db::Db;
use super::fault::Outcome;
use super::row::Columns;
use super::{Sqlite, lock};
use crate::error::Result;
use crate::meta::engine::{HeldLock, SessionRecords, StoredSession};
use crate::meta::{Ino, Sid};

/// Old clients store their last sign of life; after this many seconds without they are gone.
const LEGACY_SILENCE: i64 = 300;

#[async_trait]
impl SessionRecords for Sqlite {
    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        let info = info.to_vec();
        self.link.change(move |db| put(db, sid, expire, &info)).await
    }

    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        self.link.change(move |db| extend(db, sid, expire)).await
    }

    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        self.link.read(move |db| one(db, sid)).await
    }

    async fn sessions(&self) -> Result<Vec<StoredSession>> {
        self.link.read(|db| db.snapshot(|| all(db))).await
    }

    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        self.link.read(move |db| stale(db, now, limit)).await
    }

    async fn release_locks(&self, sid: Sid) -> Result<()> {
        self.link.change(move |db| lock::release(db, sid)).await
    }

    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        self.link.read(move |db| db.snapshot(|| lock::held(db, sid))).await
    }

    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>> {
        self.link.read(move |db| sustained(db, sid)).await
    }

    async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.link.change(move |db| remove(db, sid)).await
    }
}

pub fn put(db: &Db, sid: Sid, expire: i64, info: &[u8]) -> Outcome<()> {
    let sql = "INSERT INTO jfs_session2 (sid, expire, info) VALUES (?1, ?2, ?3) \
               ON CONFLICT (sid) DO UPDATE SET expire = ?2, info = ?3";
    db.exec(sql, params![sid, expire, info])?;
    Ok(())
}

/// False if the session is gone.
pub fn extend(db: &Db, sid: Sid, expire: i64) -> Outcome<bool> {
    let sql = "UPDATE jfs_session2 SET expire = ?2 WHERE sid = ?1";
    Ok(db.exec(sql, params![sid, expire])? > 0)
}

pub fn one(db: &Db, sid: Sid) -> Outcome<Option<StoredSession>> {
    let sql = "SELECT sid, expire, info FROM jfs_session2 WHERE sid = ?1";
    if let Some(found) = db.one(sql, [sid], |row| stored(row, 0))? {
        return Ok(Some(found));
    }
    if !has_legacy(db)? {
        return Ok(None);
    }
    let sql = "SELECT sid, heartbeat, info FROM jfs_session WHERE sid = ?1";
    db.one(sql, [sid], |row| stored(row, LEGACY_SILENCE))
}

pub fn all(db: &Db) -> Outcome<Vec<StoredSession>> {
    let sql = "SELECT sid, expire, info FROM jfs_session2 ORDER BY sid";
    let mut found = db.all(sql, [], |row| stored(row, 0))?;
    if has_legacy(db)? {
        let sql = "SELECT sid, heartbeat, info FROM jfs_session ORDER BY sid";
        found.extend(db.all(sql, [], |row| stored(row, LEGACY_SILENCE))?);
    }
    Ok(found)
}

pub fn stale(db: &Db, now: i64, limit: usize) -> Outcome<Vec<Sid>> {
    let rows = |taken: usize| i64::try_from(limit - taken).unwrap_or(i64::MAX);
    let sql = "SELECT sid FROM jfs_session2 WHERE expire < ?1 LIMIT ?2";
    let mut found = db.all(sql, params![now, rows(0)], sid_at)?;
    if found.len() < limit && has_legacy(db)? {
        let sql = "SELECT sid FROM jfs_session WHERE heartbeat < ?1 LIMIT ?2";
        let silent = now.saturating_sub(LEGACY_SILENCE);
        found.extend(db.all(sql, params![silent, rows(found.len())], sid_at)?);
    }
    Ok(found)
}

pub fn remove(db: &Db, sid: Sid) -> Outcome<()> {
    db.exec("DELETE FROM jfs_session2 WHERE sid = ?1", [sid])?;
    if has_legacy(db)? {
        db.exec("DELETE FROM jfs_session WHERE sid = ?1", [sid])?;
    }
    Ok(())
}

/// Inodes that the session keeps though they have no name any more.
pub fn sustained(db: &Db, sid: Sid) -> Outcome<Vec<Ino>> {
    let sql = "SELECT inode FROM jfs_sustained WHERE sid = ?1 ORDER BY inode";
    db.all(sql, [sid], |row| Columns::new(row, &"table sustained").ino(0))
}

pub fn sustains(db: &Db, sid: Sid, ino: Ino) -> Outcome<bool> {
    let sql = "SELECT 1 FROM jfs_sustained WHERE sid = ?1 AND inode = ?2";
    Ok(db.one(sql, params![sid, ino], |_| Ok(()))?.is_some())
}

pub fn add_sustained(db: &Db, sid: Sid, ino: Ino) -> Outcome<()> {
    let sql = "INSERT INTO jfs_sustained (sid, inode) VALUES (?1, ?2) \
               ON CONFLICT (sid, inode) DO NOTHING";
    db.exec(sql, params![sid, ino])?;
    Ok(())
}

pub fn remove_sustained(db: &Db, sid: Sid, ino: Ino) -> Outcome<()> {
    db.exec("DELETE FROM jfs_sustained WHERE sid = ?1 AND inode = ?2", params![sid, ino])?;
    Ok(())
}

fn has_legacy(db: &Db) -> Outcome<bool> {
    db.has_table("jfs_session")
}

fn stored(row: &Row<'_>, lasts: i64) -> Outcome<StoredSession> {
    let sid = sid_at(row)?;
    let of = format_args!("session {sid}");
    let columns = Columns::new(row, &of);
    let expire = columns.signed(1)?.saturating_add(lasts);
    Ok(StoredSession { sid, expire, info: columns.bytes(2)?.to_vec() })
}

fn sid_at(row: &Row<'_>) -> Outcome<Sid> {
    Ok(Sid(Columns::new(row, &"sessions").unsigned(0)?))
}
