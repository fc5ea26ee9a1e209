//! Entries: table `jfs_edge`. The parents of a node are found through the entries that point to it.

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::params;

use super::chunk;
use super::node::{attr_at, attr_columns};
use crate::error::Result;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::engine::{Cursor, EntryPage, Found, Listings};
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

#[async_trait]
impl Listings for SqliteEngine {
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        let cursor = cursor.clone();
        self.connections.read(move |db| list(db, dir, &cursor, limit)).await
    }

    async fn chunk_indexes(&self, ino: Ino, _length: u64) -> Result<Vec<u32>> {
        self.connections.read(move |db| chunk::indexes(db, ino)).await
    }
}

pub fn entry(db: &Db, dir: Ino, name: &Name) -> DbResult<Option<Entry>> {
    let sql = "SELECT type, inode FROM jfs_edge WHERE parent = ?1 AND name = ?2";
    db.one(sql, params![dir, name], |row| {
        let of = format_args!("table edge, parent {dir}, name {name:?}");
        let columns = Columns::new(row, &of);
        Ok(Entry { kind: columns.kind(0)?, ino: columns.ino(1)? })
    })
}

/// Returns the entry with its node. As in the Go client, an entry without a node does not exist.
pub fn lookup(db: &Db, dir: Ino, name: &Name) -> DbResult<Option<Found>> {
    let sql = concat!(
        "SELECT ",
        attr_columns!(),
        ", e.type, e.inode FROM jfs_edge e JOIN jfs_node n ON n.inode = e.inode \
         WHERE e.parent = ?1 AND e.name = ?2"
    );
    db.one(sql, params![dir, name], |row| {
        let of = format_args!("table edge, parent {dir}, name {name:?}");
        let columns = Columns::new(row, &of);
        let entry = Entry { kind: columns.kind(18)?, ino: columns.ino(19)? };
        Ok(Found { entry, attr: Some(attr_at(row, 0, entry.ino)?) })
    })
}

pub fn has_entries(db: &Db, dir: Ino) -> DbResult<bool> {
    let sql = "SELECT 1 FROM jfs_edge WHERE parent = ?1 LIMIT 1";
    Ok(db.one(sql, [dir], |_| Ok(()))?.is_some())
}

pub fn parents(db: &Db, ino: Ino) -> DbResult<Vec<(Ino, i64)>> {
    let sql = "SELECT parent, count(*) FROM jfs_edge WHERE inode = ?1 GROUP BY parent \
               ORDER BY parent";
    db.all(sql, [ino], |row| {
        let of = format_args!("table edge, inode {ino}");
        let columns = Columns::new(row, &of);
        Ok((columns.ino(0)?, columns.signed(1)?))
    })
}

/// Returns a page in the order of names.
fn list(db: &Db, dir: Ino, cursor: &Cursor, limit: usize) -> DbResult<EntryPage> {
    let limit = limit.max(1);
    let after = match cursor {
        Cursor::Start | Cursor::Scan(_) => None,
        Cursor::After(name) => Some(Name::unchecked(name.clone())),
        Cursor::End => return Ok(EntryPage::end()),
    };
    let mut page = EntryPage::end();
    let (mut count, mut last) = (0, Bytes::new());
    let mut visit = |row: &rusqlite::Row<'_>| -> DbResult<()> {
        let of = format_args!("table edge, parent {dir}");
        let columns = Columns::new(row, &of);
        let name = Bytes::copy_from_slice(columns.bytes(0)?);
        let entry = || DbResult::Ok(Entry { kind: columns.kind(1)?, ino: columns.ino(2)? });
        count += 1;
        last = name.clone();
        page.add(name, entry().ok());
        Ok(())
    };
    let rows = i64::try_from(limit).unwrap_or(i64::MAX);
    match after {
        None => {
            let sql = "SELECT name, type, inode FROM jfs_edge WHERE parent = ?1 \
                       ORDER BY name LIMIT ?2";
            db.each(sql, params![dir, rows], &mut visit)?;
        }
        Some(name) => {
            let sql = "SELECT name, type, inode FROM jfs_edge WHERE parent = ?1 AND name > ?2 \
                       ORDER BY name LIMIT ?3";
            db.each(sql, params![dir, name, rows], &mut visit)?;
        }
    }
    if count == limit {
        page.next = Cursor::After(last);
    }
    Ok(page)
}

pub fn put(db: &Db, dir: Ino, name: &Name, entry: Entry) -> DbResult<()> {
    let sql = "INSERT INTO jfs_edge (parent, name, inode, type) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (parent, name) DO UPDATE SET inode = ?3, type = ?4";
    db.exec(sql, params![dir, name, entry.ino, entry.kind as u8])?;
    Ok(())
}

pub fn remove(db: &Db, dir: Ino, name: &Name) -> DbResult<()> {
    db.exec("DELETE FROM jfs_edge WHERE parent = ?1 AND name = ?2", params![dir, name])?;
    Ok(())
}
