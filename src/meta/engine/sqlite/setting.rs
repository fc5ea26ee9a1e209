//! The setting: table `jfs_setting`, row `format`; and what a fresh volume begins with.

use rusqlite::params;

use super::counter;
use super::db::Db;
use super::fault::Outcome;
use super::node;
use super::row::{Columns, Text};
use crate::meta::Ino;
use crate::meta::record::Attr;

/// `None` on a database without a volume.
pub fn load(db: &Db) -> Outcome<Option<Vec<u8>>> {
    if !db.has_table("jfs_setting")? {
        return Ok(None);
    }
    let sql = "SELECT value FROM jfs_setting WHERE name = 'format'";
    db.one(sql, [], |row| Ok(Columns::new(row, &"table setting").bytes(0)?.to_vec()))
}

pub fn store(db: &Db, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Outcome<()> {
    if let Some(trash) = trash {
        put_absent(db, Ino::TRASH, trash)?;
    }
    let sql = "UPDATE jfs_setting SET value = ?1 WHERE name = 'format'";
    if db.exec(sql, [Text(json)])? > 0 {
        return Ok(());
    }
    let sql = "INSERT INTO jfs_setting (name, value) VALUES ('format', ?1)";
    db.exec(sql, params![Text(json)])?;
    put_absent(db, Ino::ROOT, root)?;
    for (name, value) in counter::INITIAL {
        counter::insert(db, name, value)?;
    }
    Ok(())
}

fn put_absent(db: &Db, ino: Ino, attr: &Attr) -> Outcome<()> {
    if node::attr(db, ino)?.is_none() {
        node::put(db, ino, attr)?;
    }
    Ok(())
}
