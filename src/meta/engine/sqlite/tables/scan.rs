//! Scans of the whole volume: all rows of `jfs_chunk` and `jfs_delslices`, by primary key.

use async_trait::async_trait;
use rusqlite::params;

use super::rows;
use crate::error::{Error, Result};
use crate::meta::SliceId;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::engine::{Cursor, DelayedSlices, ScanPage, Scans, StoredChunk};
use crate::meta::record::{chunk, delayed_slices};

#[async_trait]
impl Scans for SqliteEngine {
    async fn scan_chunks(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<StoredChunk>> {
        let Some(after) = position(cursor)? else { return Ok(page(Vec::new(), 0)) };
        let limit = limit.max(1);
        let found = self.connections.read(move |db| chunks(db, after, rows(limit))).await?;
        Ok(page(found, limit))
    }

    async fn scan_delayed(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<DelayedSlices>> {
        let Some(after) = position(cursor)? else { return Ok(page(Vec::new(), 0)) };
        let limit = limit.max(1);
        let found = self.connections.read(move |db| delayed(db, after, rows(limit))).await?;
        Ok(page(found, limit))
    }
}

/// Returns the primary key of the last row; none at the end.
fn position(cursor: &Cursor) -> Result<Option<i64>> {
    match cursor {
        Cursor::Start => Ok(Some(i64::MIN)),
        Cursor::Scan(last) => Ok(Some(last.cast_signed())),
        Cursor::End => Ok(None),
        Cursor::After(_) => Err(Error::bad_input("a scan of a table continues at a row")),
    }
}

fn page<T>(found: Vec<(i64, T)>, limit: usize) -> ScanPage<T> {
    let next = match found.last() {
        Some((last, _)) if found.len() >= limit => Cursor::Scan(last.cast_unsigned()),
        _ => Cursor::End,
    };
    ScanPage { records: found.into_iter().map(|(_, record)| record).collect(), next }
}

fn chunks(db: &Db, after: i64, limit: i64) -> DbResult<Vec<(i64, StoredChunk)>> {
    let sql = "SELECT id, inode, indx, slices FROM jfs_chunk WHERE id > ?1 ORDER BY id LIMIT ?2";
    db.all(sql, params![after, limit], |row| {
        let columns = Columns::new(row, &"table chunk");
        let (ino, index) = (columns.ino(1)?, columns.number(2)?);
        let slices = chunk::decode(columns.bytes(3)?).ok();
        Ok((columns.signed(0)?, StoredChunk { ino, index, slices }))
    })
}

fn delayed(db: &Db, after: i64, limit: i64) -> DbResult<Vec<(i64, DelayedSlices)>> {
    let sql = "SELECT chunkid, deleted, slices FROM jfs_delslices WHERE chunkid > ?1 \
               ORDER BY chunkid LIMIT ?2";
    db.all(sql, params![after, limit], |row| {
        let id = SliceId(Columns::new(row, &"table delslices").unsigned(0)?);
        let of = format_args!("table delslices, chunkid {id}");
        let columns = Columns::new(row, &of);
        let slices = columns.decoded(2, delayed_slices::decode(columns.bytes(2)?))?;
        Ok((columns.signed(0)?, DelayedSlices { id, at: columns.signed(1)?, slices }))
    })
}
