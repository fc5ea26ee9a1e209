//! Symlink targets and extended attributes: tables `jfs_symlink` and `jfs_xattr`.

use bytes::Bytes;
use rusqlite::{Row, params};

use crate::meta::engine::sqlite::columns::{Columns, Text};
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::{Ino, Name};

pub fn symlink(db: &Db, ino: Ino) -> DbResult<Option<Bytes>> {
    let sql = "SELECT target FROM jfs_symlink WHERE inode = ?1";
    db.one(sql, [ino], |row| bytes_at(row, 0, &format_args!("table symlink, inode {ino}")))
}

pub fn put_symlink(db: &Db, ino: Ino, target: &[u8]) -> DbResult<()> {
    let sql = "INSERT INTO jfs_symlink (inode, target) VALUES (?1, ?2) \
               ON CONFLICT (inode) DO UPDATE SET target = ?2";
    db.exec(sql, params![ino, target])?;
    Ok(())
}

pub fn remove_symlink(db: &Db, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_symlink WHERE inode = ?1", [ino])?;
    Ok(())
}

pub fn xattr(db: &Db, ino: Ino, name: &Name) -> DbResult<Option<Bytes>> {
    let sql = "SELECT value FROM jfs_xattr WHERE inode = ?1 AND name = ?2";
    db.one(sql, params![ino, Text(name.as_bytes())], |row| {
        bytes_at(row, 0, &format_args!("table xattr, inode {ino}, name {name:?}"))
    })
}

pub fn xattrs(db: &Db, ino: Ino) -> DbResult<Vec<(Name, Bytes)>> {
    let sql = "SELECT name, value FROM jfs_xattr WHERE inode = ?1 ORDER BY name";
    db.all(sql, [ino], |row| {
        let of = format_args!("table xattr, inode {ino}");
        Ok((Name::unchecked(bytes_at(row, 0, &of)?), bytes_at(row, 1, &of)?))
    })
}

pub fn put_xattr(db: &Db, ino: Ino, name: &Name, value: &[u8]) -> DbResult<()> {
    let sql = "INSERT INTO jfs_xattr (inode, name, value) VALUES (?1, ?2, ?3) \
               ON CONFLICT (inode, name) DO UPDATE SET value = ?3";
    db.exec(sql, params![ino, Text(name.as_bytes()), value])?;
    Ok(())
}

pub fn remove_xattr(db: &Db, ino: Ino, name: &Name) -> DbResult<()> {
    let sql = "DELETE FROM jfs_xattr WHERE inode = ?1 AND name = ?2";
    db.exec(sql, params![ino, Text(name.as_bytes())])?;
    Ok(())
}

pub fn remove_xattrs(db: &Db, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_xattr WHERE inode = ?1", [ino])?;
    Ok(())
}

fn bytes_at(row: &Row<'_>, index: usize, of: &dyn std::fmt::Display) -> DbResult<Bytes> {
    Ok(Bytes::copy_from_slice(Columns::new(row, of).bytes(index)?))
}
