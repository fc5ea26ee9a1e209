//! Chunks: table `jfs_chunk`, one row for all records of a chunk.

use rusqlite::params;

use crate::meta::Ino;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::{DbError, DbResult};
use crate::meta::record::{Slice, chunk};

pub fn slices(db: &Db, ino: Ino, index: u32) -> DbResult<Vec<Slice>> {
    let sql = "SELECT slices FROM jfs_chunk WHERE inode = ?1 AND indx = ?2";
    let found = db.one(sql, params![ino, index], |row| {
        let of = format_args!("table chunk, inode {ino}, indx {index}");
        let columns = Columns::new(row, &of);
        columns.decoded(0, chunk::decode(columns.bytes(0)?))
    })?;
    Ok(found.unwrap_or_default())
}

/// Returns the indexes of the chunks of a file, ascending.
pub fn indexes(db: &Db, ino: Ino) -> DbResult<Vec<u32>> {
    let sql = "SELECT indx FROM jfs_chunk WHERE inode = ?1 ORDER BY indx";
    db.all(sql, [ino], |row| Columns::new(row, &format_args!("table chunk, inode {ino}")).number(0))
}

/// Appends records and returns how many there are now; 0 if `if_present` and there were none.
pub fn append(db: &Db, ino: Ino, index: u32, more: &[Slice], if_present: bool) -> DbResult<i64> {
    // Concatenating two blobs gives text in SQLite, whose length would end at the first zero.
    let sql = if if_present {
        "UPDATE jfs_chunk SET slices = CAST(slices || ?3 AS BLOB) WHERE inode = ?1 AND indx = ?2 \
         RETURNING length(slices)"
    } else {
        "INSERT INTO jfs_chunk (inode, indx, slices) VALUES (?1, ?2, ?3) \
         ON CONFLICT (inode, indx) DO UPDATE SET slices = CAST(slices || ?3 AS BLOB) \
         RETURNING length(slices)"
    };
    let encoded = chunk::encode(more);
    let bytes = db.one(sql, params![ino, index, &encoded[..]], |row| {
        Columns::new(row, &format_args!("table chunk, inode {ino}, indx {index}")).signed(0)
    })?;
    Ok(bytes.unwrap_or(0) / i64::try_from(chunk::SLICE_LEN).unwrap_or(1))
}

/// Replaces the first `count` records by `with`.
pub fn replace(db: &Db, ino: Ino, index: u32, count: usize, with: &[Slice]) -> DbResult<()> {
    let now = slices(db, ino, index)?;
    let Some(appended) = now.get(count..) else { return Err(DbError::Conflict) };
    let all: Vec<Slice> = with.iter().chain(appended).copied().collect();
    let sql = "UPDATE jfs_chunk SET slices = ?3 WHERE inode = ?1 AND indx = ?2";
    db.exec(sql, params![ino, index, &chunk::encode(&all)[..]])?;
    Ok(())
}

pub fn remove(db: &Db, ino: Ino, index: u32) -> DbResult<()> {
    db.exec("DELETE FROM jfs_chunk WHERE inode = ?1 AND indx = ?2", params![ino, index])?;
    Ok(())
}
