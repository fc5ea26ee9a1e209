//! What is waiting for deletion: files in `jfs_delfile`, detached directories in
//! `jfs_detached_node`.

use async_trait::async_trait;
use rusqlite::params;

use super::{rows, slice};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::engine::{DelayedSlices, DeletedFile, GarbageRecords};
use crate::meta::record::SliceSize;

#[async_trait]
impl GarbageRecords for SqliteEngine {
    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>> {
        self.connections.read(move |db| files(db, before, rows(limit))).await
    }

    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>> {
        self.connections.read(move |db| slice::dead(db, rows(limit))).await
    }

    async fn has_slice_ref(&self, slice: SliceSize) -> Result<bool> {
        self.connections.read(move |db| Ok(slice::refs(db, slice.id)? > 0)).await
    }

    /// Every slice has a row here, so a single reference needs one.
    async fn drop_single_refs(&self) -> Result<()> {
        Ok(())
    }

    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        self.connections.read(move |db| slice::delayed(db, before, rows(limit))).await
    }

    async fn detached(&self, before: i64) -> Result<Vec<Ino>> {
        self.connections.read(move |db| detached(db, before)).await
    }
}

pub fn put_file(db: &Db, ino: Ino, length: u64, at: i64) -> DbResult<()> {
    // Despite its name, the column `expire` holds the time of removal.
    let sql = "INSERT INTO jfs_delfile (inode, length, expire) VALUES (?1, ?2, ?3) \
               ON CONFLICT (inode) DO UPDATE SET length = ?2, expire = ?3";
    db.exec(sql, params![ino, length.cast_signed(), at])?;
    Ok(())
}

pub fn remove_file(db: &Db, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_delfile WHERE inode = ?1", [ino])?;
    Ok(())
}

fn files(db: &Db, before: i64, limit: i64) -> DbResult<Vec<DeletedFile>> {
    let sql = "SELECT inode, length, expire FROM jfs_delfile WHERE expire <= ?1 LIMIT ?2";
    db.all(sql, params![before, limit], |row| {
        let ino = Columns::new(row, &"table delfile").ino(0)?;
        let of = format_args!("table delfile, inode {ino}");
        let columns = Columns::new(row, &of);
        Ok(DeletedFile { ino, length: columns.unsigned(1)?, at: columns.signed(2)? })
    })
}

pub fn put_detached(db: &Db, ino: Ino, at: i64) -> DbResult<()> {
    let sql = "INSERT INTO jfs_detached_node (inode, added) VALUES (?1, ?2) \
               ON CONFLICT (inode) DO UPDATE SET added = ?2";
    db.exec(sql, params![ino, at])?;
    Ok(())
}

pub fn remove_detached(db: &Db, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_detached_node WHERE inode = ?1", [ino])?;
    Ok(())
}

fn detached(db: &Db, before: i64) -> DbResult<Vec<Ino>> {
    let sql = "SELECT inode FROM jfs_detached_node WHERE added <= ?1";
    db.all(sql, [before], |row| Columns::new(row, &"table detached_node").ino(0))
}
