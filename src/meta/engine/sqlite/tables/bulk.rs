//! Whole volumes: all rows in, all rows out.

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Row, params};

use super::{counter, entry, garbage, node, session, usage, xattr};
use crate::error::{Error, Result};
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::{Columns, Text};
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::{DbError, DbResult};
use crate::meta::engine::{BulkRecords, Cursor, Part, Stored, StoredPage};
use crate::meta::record::{AclRule, Counter, DirStat, Entry, Slice, SliceSize, acl, chunk};
use crate::meta::{Ino, Name, SliceId};

/// Rows of one page.
const PAGE: i64 = 2000;
/// Records written by one transaction.
const RECORDS: usize = 4000;

/// A table of the tree, with the rows after the one with this id.
type ReadTable = fn(&Db, i64, &mut StoredPage) -> DbResult<Option<i64>>;

const TREE: [ReadTable; 6] = [nodes, edges, parents, chunks, symlinks, xattrs];

#[async_trait]
impl BulkRecords for SqliteEngine {
    async fn is_empty(&self) -> Result<bool> {
        let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        self.connections.read(move |db| Ok(db.one(sql, [], |_| Ok(()))?.is_none())).await
    }

    async fn put_stored(&self, records: Vec<Stored>) -> Result<()> {
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            let some: Vec<Stored> = records.by_ref().take(RECORDS).collect();
            self.connections
                .write(move |db| some.iter().try_for_each(|record| put(db, record)))
                .await?;
        }
        Ok(())
    }

    async fn finish_load(&self, setting: &[u8]) -> Result<()> {
        let setting = setting.to_vec();
        self.connections.write(move |db| finish(db, &setting)).await
    }

    async fn scan_stored(&self, part: Part, cursor: &Cursor) -> Result<StoredPage> {
        let tables: &'static [ReadTable] = match part {
            Part::Tree => &TREE,
            Part::SliceRefs => &[slice_refs],
            Part::DirStats => &[dir_stats],
        };
        let (table, after) = match cursor {
            Cursor::Start => (0, i64::MIN),
            Cursor::After(raw) => position(raw)?,
            Cursor::End => return Ok(StoredPage::end()),
            Cursor::Scan(_) => return Err(Error::bad_input("a scan continues after a row")),
        };
        let Some(read) = tables.get(table).copied() else { return Ok(StoredPage::end()) };
        let read = move |db: &Db| {
            let mut page = StoredPage::end();
            let last = read(db, after, &mut page)?;
            Ok((last, page))
        };
        let (last, mut page) = self.connections.read(read).await?;
        page.next = match last {
            Some(last) => cursor_at(table, last),
            None if table + 1 < tables.len() => cursor_at(table + 1, i64::MIN),
            None => Cursor::End,
        };
        Ok(page)
    }
}

fn cursor_at(table: usize, after: i64) -> Cursor {
    let mut raw = vec![u8::try_from(table).unwrap_or(u8::MAX)];
    raw.extend(after.to_be_bytes());
    Cursor::After(raw.into())
}

fn position(raw: &Bytes) -> Result<(usize, i64)> {
    match raw.split_first().map(|(table, after)| (*table, <[u8; 8]>::try_from(after))) {
        Some((table, Ok(after))) => Ok((table.into(), i64::from_be_bytes(after))),
        _ => Err(Error::bad_input("not a position of a scan")),
    }
}

fn finish(db: &Db, setting: &[u8]) -> DbResult<()> {
    let sql = "INSERT INTO jfs_setting (name, value) VALUES ('format', ?1) \
               ON CONFLICT (name) DO UPDATE SET value = ?1";
    db.exec(sql, [Text(setting)])?;
    let mark = Counter::UnfinishedLoad.name();
    db.exec("DELETE FROM jfs_counter WHERE name = ?1", [mark])?;
    // A new volume has this row too.
    counter::insert(db, Counter::NextCleanupSlices.name(), 0)
}

fn put(db: &Db, record: &Stored) -> DbResult<()> {
    match record {
        Stored::Counter(counter, value) => {
            let sql = "INSERT INTO jfs_counter (name, value) VALUES (?1, ?2) \
                       ON CONFLICT (name) DO UPDATE SET value = ?2";
            db.exec(sql, params![counter.name(), value])?;
        }
        Stored::Attr(ino, attr) => node::put(db, *ino, attr)?,
        Stored::Entry(dir, name, to) => entry::put(db, *dir, name, *to)?,
        // Parents are counted from the entries.
        Stored::Parent { .. } => {}
        Stored::Chunk(ino, index, slices) => put_chunk(db, *ino, *index, slices)?,
        Stored::SliceRef(slice, refs) => {
            let sql = "INSERT INTO jfs_chunk_ref (chunkid, size, refs) VALUES (?1, ?2, ?3) \
                       ON CONFLICT (chunkid) DO UPDATE SET size = ?2, refs = ?3";
            db.exec(sql, params![slice.id, slice.size, refs])?;
        }
        Stored::Symlink(ino, target) => xattr::put_symlink(db, *ino, target)?,
        Stored::Xattr(ino, name, value) => xattr::put_xattr(db, *ino, name, value)?,
        Stored::Sustained(sid, ino) => session::add_sustained(db, *sid, *ino)?,
        Stored::DeletedFile(file) => garbage::put_file(db, file.ino, file.length, file.at)?,
        Stored::DirStat(ino, stat) => usage::put_dir_stat(db, *ino, stat)?,
        Stored::Quota(key, quota) => {
            usage::put_quota(db, *key, quota, true)?;
        }
        Stored::Acl(id, rule) => put_acl(db, *id, rule)?,
    }
    Ok(())
}

fn put_chunk(db: &Db, ino: Ino, index: u32, slices: &[Slice]) -> DbResult<()> {
    let sql = "INSERT INTO jfs_chunk (inode, indx, slices) VALUES (?1, ?2, ?3) \
               ON CONFLICT (inode, indx) DO UPDATE SET slices = ?3";
    db.exec(sql, params![ino, index, &chunk::encode(slices)[..]])?;
    let sql = "INSERT INTO jfs_chunk_ref (chunkid, size, refs) VALUES (?1, ?2, 1) \
               ON CONFLICT DO NOTHING";
    for slice in slices.iter().filter(|slice| !slice.id.is_hole()) {
        db.exec(sql, params![slice.id, slice.size])?;
    }
    Ok(())
}

fn put_acl(db: &Db, id: u32, rule: &AclRule) -> DbResult<()> {
    let sql = "INSERT OR REPLACE INTO jfs_acl \
               (id, owner, `group`, mask, other, named_users, named_groups) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let (users, groups) = (acl::encode_entries(&rule.users), acl::encode_entries(&rule.groups));
    let classes = (rule.owner, rule.group, rule.mask, rule.other);
    let (owner, group, mask, other) = classes;
    db.exec(sql, params![id, owner, group, mask, other, &users[..], &groups[..]])?;
    Ok(())
}

/// Reads one page of a table whose first selected column is the row's id. Returns the id of the
/// last row, if there may be more.
fn rows(
    db: &Db,
    sql: &str,
    after: i64,
    page: &mut StoredPage,
    read: impl Fn(&Row<'_>) -> DbResult<Stored>,
) -> DbResult<Option<i64>> {
    let (mut last, mut count) = (None, 0);
    db.each(sql, params![after, PAGE], |row| {
        last = Some(Columns::new(row, &"a table").signed(0)?);
        count += 1;
        match read(row) {
            Ok(record) => page.records.push(record),
            Err(DbError::Other(error @ (Error::Damaged { .. } | Error::Invalid))) => {
                page.damaged.push(error.to_string());
            }
            Err(other) => return Err(other),
        }
        Ok(())
    })?;
    Ok(last.filter(|_| count == PAGE))
}

fn nodes(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = concat!(
        "SELECT n.inode, ",
        node::attr_columns!(),
        " FROM jfs_node n WHERE n.inode > ?1 ORDER BY n.inode LIMIT ?2"
    );
    rows(db, sql, after, page, |row| {
        let ino = Columns::new(row, &"table node").ino(0)?;
        Ok(Stored::Attr(ino, node::attr_at(row, 1, ino)?))
    })
}

fn edges(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT rowid, parent, name, inode, type FROM jfs_edge WHERE rowid > ?1 \
               ORDER BY rowid LIMIT ?2";
    rows(db, sql, after, page, |row| {
        let columns = Columns::new(row, &"table edge");
        let name = columns.bytes(2)?;
        let named = Name::new(name).map_err(|_| columns.damaged(2, "not a name"))?;
        Ok(Stored::Entry(
            columns.ino(1)?,
            named,
            Entry { ino: columns.ino(3)?, kind: columns.kind(4)? },
        ))
    })
}

/// The parents of hard-linked nodes, counted from their entries.
fn parents(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT inode FROM jfs_node WHERE inode > ?1 AND type <> 2 AND nlink > 1 \
               ORDER BY inode LIMIT ?2";
    let linked =
        db.all(sql, params![after, PAGE], |row| Columns::new(row, &"table node").ino(0))?;
    for ino in &linked {
        let found = entry::parents(db, *ino)?.into_iter();
        page.records.extend(found.map(|(parent, count)| Stored::Parent {
            ino: *ino,
            parent,
            count,
        }));
    }
    let is_last = i64::try_from(linked.len()).unwrap_or(PAGE) < PAGE;
    Ok(linked.last().filter(|_| !is_last).map(|ino| ino.0.cast_signed()))
}

fn chunks(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT rowid, inode, indx, slices FROM jfs_chunk WHERE rowid > ?1 \
               ORDER BY rowid LIMIT ?2";
    rows(db, sql, after, page, |row| {
        let columns = Columns::new(row, &"table chunk");
        let slices = columns.decoded(3, chunk::decode(columns.bytes(3)?))?;
        Ok(Stored::Chunk(columns.ino(1)?, columns.number(2)?, slices))
    })
}

fn symlinks(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT rowid, inode, target FROM jfs_symlink WHERE rowid > ?1 \
               ORDER BY rowid LIMIT ?2";
    rows(db, sql, after, page, |row| {
        let columns = Columns::new(row, &"table symlink");
        Ok(Stored::Symlink(columns.ino(1)?, Bytes::copy_from_slice(columns.bytes(2)?)))
    })
}

fn xattrs(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT rowid, inode, name, value FROM jfs_xattr WHERE rowid > ?1 \
               ORDER BY rowid LIMIT ?2";
    rows(db, sql, after, page, |row| {
        let columns = Columns::new(row, &"table xattr");
        let name = Name::unchecked(Bytes::copy_from_slice(columns.bytes(2)?));
        Ok(Stored::Xattr(columns.ino(1)?, name, Bytes::copy_from_slice(columns.bytes(3)?)))
    })
}

fn slice_refs(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT rowid, chunkid, size, refs FROM jfs_chunk_ref WHERE rowid > ?1 AND refs <> 1 \
               ORDER BY rowid LIMIT ?2";
    rows(db, sql, after, page, |row| {
        let columns = Columns::new(row, &"table chunk_ref");
        let slice = SliceSize { id: SliceId(columns.unsigned(1)?), size: columns.number(2)? };
        Ok(Stored::SliceRef(slice, columns.signed(3)?))
    })
}

fn dir_stats(db: &Db, after: i64, page: &mut StoredPage) -> DbResult<Option<i64>> {
    let sql = "SELECT rowid, inode, data_length, used_space, used_inodes FROM jfs_dir_stats \
               WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
    rows(db, sql, after, page, |row| {
        let columns = Columns::new(row, &"table dir_stats");
        let stat = DirStat {
            length: columns.signed(2)?,
            space: columns.signed(3)?,
            inodes: columns.signed(4)?,
        };
        Ok(Stored::DirStat(columns.ino(1)?, stat))
    })
}
