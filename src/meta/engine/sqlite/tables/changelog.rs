//! The change log: table `jfs_change_log`, one row per line. The id of the row is the version.

use async_trait::async_trait;
use rusqlite::params;

use super::rows;
use crate::error::Result;
use crate::meta::engine::ChangeLogRecords;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;

#[async_trait]
impl ChangeLogRecords for SqliteEngine {
    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        self.connections.read(move |db| lines(db, after, rows(limit))).await
    }

    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        let cutoff = self.connections.read(move |db| cutoff(db, before, keep)).await?;
        if cutoff > 0 {
            while !self.connections.write(move |db| drop_some(db, cutoff)).await? {}
        }
        Ok(())
    }
}

pub fn append(db: &Db, line: &str) -> DbResult<()> {
    db.exec("INSERT INTO jfs_change_log (entry) VALUES (?1)", [line])?;
    Ok(())
}

/// Returns lines with versions above `after`.
fn lines(db: &Db, after: i64, limit: i64) -> DbResult<Vec<(i64, String)>> {
    let sql = "SELECT id, entry FROM jfs_change_log WHERE id > ?1 ORDER BY id LIMIT ?2";
    db.all(sql, params![after, limit], |row| {
        let columns = Columns::new(row, &"table change_log");
        let line = String::from_utf8_lossy(columns.bytes(1)?).into_owned();
        Ok((columns.signed(0)?, line))
    })
}

/// Returns the version of the last line to drop, by age and by count; 0 if there is none.
fn cutoff(db: &Db, before: Option<i64>, keep: Option<u64>) -> DbResult<i64> {
    let by_age = before.map_or(Ok(0), |before| expired(db, before))?;
    let by_count = keep.map_or(Ok(0), |keep| surplus(db, keep))?;
    Ok(by_age.max(by_count))
}

/// Removes some of the lines up to `cutoff`. Returns whether no more are left to remove.
fn drop_some(db: &Db, cutoff: i64) -> DbResult<bool> {
    /// Bounds how long the lock is held.
    const MAX_ROWS: usize = 10_000;
    let sql = "DELETE FROM jfs_change_log WHERE id IN \
               (SELECT id FROM jfs_change_log WHERE id <= ?1 ORDER BY id LIMIT ?2)";
    let gone = db.exec(sql, params![cutoff, i64::try_from(MAX_ROWS).unwrap_or(i64::MAX)])?;
    Ok(gone < MAX_ROWS)
}

/// Returns the version of the last line written before `before`. Lines are in the order of time,
/// except that clocks may differ: this stops at the first line that is too young.
fn expired(db: &Db, before: i64) -> DbResult<i64> {
    const PAGE: i64 = 1000;
    let mut cutoff = 0;
    let mut seen = 0;
    loop {
        let page = lines(db, seen, PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(cutoff) };
        seen = *last;
        for (id, line) in &page {
            match written_at(line) {
                Some(at) if at < before => cutoff = *id,
                Some(_) => return Ok(cutoff),
                None => {}
            }
        }
    }
}

fn surplus(db: &Db, keep: u64) -> DbResult<i64> {
    let sql = "SELECT id FROM jfs_change_log ORDER BY id DESC LIMIT 1 OFFSET ?1";
    let skip = i64::try_from(keep).unwrap_or(i64::MAX);
    let found = db.one(sql, [skip], |row| Columns::new(row, &"table change_log").signed(0))?;
    Ok(found.unwrap_or(0))
}

/// Returns the unix second that a line begins with.
fn written_at(line: &str) -> Option<i64> {
    line.split_once('.')?.0.parse().ok()
}
