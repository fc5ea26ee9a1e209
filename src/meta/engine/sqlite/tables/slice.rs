//! Slices: reference counts in `jfs_chunk_ref`, delayed deletion in `jfs_delslices`.

use rusqlite::{Row, params};

use crate::error::Error;
use crate::meta::SliceId;
use crate::meta::engine::DelayedSlices;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::record::{SliceSize, delayed_slices};

/// Returns the references of a slice; 0 if there is no row.
pub fn refs(db: &Db, id: SliceId) -> DbResult<i64> {
    let sql = "SELECT refs FROM jfs_chunk_ref WHERE chunkid = ?1";
    Ok(db.one(sql, [id], |row| refs_at(row, id))?.unwrap_or(0))
}

/// Inserts a slice that is named for the first time. An id that already exists is an error.
pub fn insert(db: &Db, slice: SliceSize) -> DbResult<()> {
    let sql = "INSERT INTO jfs_chunk_ref (chunkid, size, refs) VALUES (?1, ?2, 1) \
               ON CONFLICT DO NOTHING";
    if db.exec(sql, params![slice.id, slice.size])? == 0 {
        let row = format!("table chunk_ref, chunkid {}", slice.id);
        return Err(Error::damaged(row, "a new slice has the same id").into());
    }
    Ok(())
}

/// Adds to the references and returns those left.
pub fn add_refs(db: &Db, slice: SliceSize, by: i64) -> DbResult<i64> {
    let sql = "UPDATE jfs_chunk_ref SET refs = refs + ?2 WHERE chunkid = ?1 RETURNING refs";
    if let Some(left) = db.one(sql, params![slice.id, by], |row| refs_at(row, slice.id))? {
        return Ok(left);
    }
    if by > 0 {
        // The row is missing, but the record that is being copied exists: it counts as one.
        let sql = "INSERT INTO jfs_chunk_ref (chunkid, size, refs) VALUES (?1, ?2, ?3)";
        db.exec(sql, params![slice.id, slice.size, 1 + by])?;
        return Ok(1 + by);
    }
    // Without a row, this may not have been the last reference: the objects must stay.
    Ok(1)
}

pub fn remove(db: &Db, slice: SliceSize) -> DbResult<()> {
    db.exec("DELETE FROM jfs_chunk_ref WHERE chunkid = ?1", [slice.id])?;
    Ok(())
}

/// Returns slices without references.
pub fn dead(db: &Db, limit: i64) -> DbResult<Vec<SliceSize>> {
    let sql = "SELECT chunkid, size FROM jfs_chunk_ref WHERE refs <= 0 LIMIT ?1";
    db.all(sql, [limit], |row| {
        let columns = Columns::new(row, &"table chunk_ref");
        Ok(SliceSize { id: SliceId(columns.unsigned(0)?), size: columns.number(1)? })
    })
}

pub fn put_delayed(db: &Db, id: SliceId, at: i64, slices: &[SliceSize]) -> DbResult<()> {
    let encoded = delayed_slices::encode(slices);
    // The Go client treats an empty list as damage.
    if !encoded.is_empty() {
        let sql = "INSERT INTO jfs_delslices (chunkid, deleted, slices) VALUES (?1, ?2, ?3)";
        db.exec(sql, params![id, at, &encoded[..]])?;
    }
    Ok(())
}

pub fn remove_delayed(db: &Db, id: SliceId, at: i64) -> DbResult<()> {
    db.exec("DELETE FROM jfs_delslices WHERE chunkid = ?1 AND deleted = ?2", params![id, at])?;
    Ok(())
}

/// Returns the slices of one delayed list; none if there is no such list.
pub fn delayed_list(db: &Db, id: SliceId, at: i64) -> DbResult<Vec<SliceSize>> {
    let sql = "SELECT slices FROM jfs_delslices WHERE chunkid = ?1 AND deleted = ?2";
    let list = db.one(sql, params![id, at], |row| {
        let of = format_args!("table delslices, chunkid {id}");
        let columns = Columns::new(row, &of);
        columns.decoded(0, delayed_slices::decode(columns.bytes(0)?))
    })?;
    Ok(list.unwrap_or_default())
}

pub fn delayed(db: &Db, before: i64, limit: i64) -> DbResult<Vec<DelayedSlices>> {
    let sql = "SELECT chunkid, deleted, slices FROM jfs_delslices WHERE deleted <= ?1 LIMIT ?2";
    db.all(sql, params![before, limit], |row| {
        let id = SliceId(Columns::new(row, &"table delslices").unsigned(0)?);
        let of = format_args!("table delslices, chunkid {id}");
        let columns = Columns::new(row, &of);
        let slices = columns.decoded(2, delayed_slices::decode(columns.bytes(2)?))?;
        Ok(DelayedSlices { id, at: columns.signed(1)?, slices })
    })
}

fn refs_at(row: &Row<'_>, id: SliceId) -> DbResult<i64> {
    Columns::new(row, &format_args!("table chunk_ref, chunkid {id}")).signed(0)
}
