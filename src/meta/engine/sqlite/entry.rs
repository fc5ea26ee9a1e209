//! Entries: table `jfs_edge`. Parents of a node are the entries that point to it.

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::params;

use super::db::Db;
use super::fault::Outcome;
use super::node::{attr_at, attr_columns};
use super::row::Columns;
use super::{Sqlite, chunk};
use crate::error::Result;
use crate::meta::engine::{Cursor, EntryPage, Found, Listings};
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

#[async_trait]
impl Listings for Sqlite {
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        let cursor = cursor.clone();
        self.link.read(move |db| list(db, dir, &cursor, limit)).await
    }

    async fn chunk_indexes(&self, ino: Ino, _length: u64) -> Result<Vec<u32>> {
        self.link.read(move |db| chunk::indexes(db, ino)).await
    }
}

pub fn entry(db: &Db, dir: Ino, name: &Name) -> Outcome<Option<Entry>> {
    let sql = "SELECT type, inode FROM jfs_edge WHERE parent = ?1 AND name = ?2";
    db.one(sql, params![dir, name], |row| {
        let of = format_args!("table edge, parent {dir}, name {name:?}");
        let columns = Columns::new(row, &of);
        Ok(Entry { kind: columns.kind(0)?, ino: columns.ino(1)? })
    })
}

/// The entry with its node. As for the Go client, an entry without a node is none.
pub fn lookup(db: &Db, dir: Ino, name: &Name) -> Outcome<Option<Found>> {
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

pub fn has_entries(db: &Db, dir: Ino) -> Outcome<bool> {
    let sql = "SELECT 1 FROM jfs_edge WHERE parent = ?1 LIMIT 1";
    Ok(db.one(sql, [dir], |_| Ok(()))?.is_some())
}

pub fn parents(db: &Db, ino: Ino) -> Outcome<Vec<(Ino, i64)>> {
    let sql = "SELECT parent, count(*) FROM jfs_edge WHERE inode = ?1 GROUP BY parent \
               ORDER BY parent";
    db.all(sql, [ino], |row| {
        let of = format_args!("table edge, inode {ino}");
        let columns = Columns::new(row, &of);
        Ok((columns.ino(0)?, columns.signed(1)?))
    })
}

/// A page in the order of names.
pub fn list(db: &Db, dir: Ino, cursor: &Cursor, limit: usize) -> Outcome<EntryPage> {
    let limit = limit.max(1);
    let after = match cursor {
        Cursor::Start | Cursor::Scan(_) => None,
        Cursor::After(name) => Some(Name::unchecked(name.clone())),
        Cursor::End => return Ok(EntryPage::end()),
    };
    let mut page = EntryPage::end();
    let (mut count, mut last) = (0, Bytes::new());
    let mut see = |row: &rusqlite::Row<'_>| -> Outcome<()> {
        let of = format_args!("table edge, parent {dir}");
        let columns = Columns::new(row, &of);
        let name = Bytes::copy_from_slice(columns.bytes(0)?);
        let entry = || Outcome::Ok(Entry { kind: columns.kind(1)?, ino: columns.ino(2)? });
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
            db.each(sql, params![dir, rows], &mut see)?;
        }
        Some(name) => {
            let sql = "SELECT name, type, inode FROM jfs_edge WHERE parent = ?1 AND name > ?2 \
                       ORDER BY name LIMIT ?3";
            db.each(sql, params![dir, name, rows], &mut see)?;
        }
    }
    if count == limit {
        page.next = Cursor::After(last);
    }
    Ok(page)
}

pub fn put(db: &Db, dir: Ino, name: &Name, entry: Entry) -> Outcome<()> {
    let sql = "INSERT INTO jfs_edge (parent, name, inode, type) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (parent, name) DO UPDATE SET inode = ?3, type = ?4";
    db.exec(sql, params![dir, name, entry.ino, entry.kind as u8])?;
    Ok(())
}

pub fn remove(db: &Db, dir: Ino, name: &Name) -> Outcome<()> {
    db.exec("DELETE FROM jfs_edge WHERE parent = ?1 AND name = ?2", params![dir, name])?;
    Ok(())
}
