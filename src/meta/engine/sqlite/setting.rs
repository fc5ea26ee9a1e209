//! The setting: table `jfs_setting`, row `format`; and what a fresh volume begins with.

use async_trait::async_trait;
use rusqlite::params;

use super::counter;
use super::db::Db;
use super::fault::Outcome;
use super::node;
use super::row::{Columns, Text};
use super::{Sqlite, schema};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::SettingRecords;
use crate::meta::record::Attr;

#[async_trait]
impl SettingRecords for Sqlite {
    async fn load_setting(&self) -> Result<Option<Vec<u8>>> {
        self.link.read(|db| db.snapshot(|| load(db))).await
    }

    async fn prepare(&self) -> Result<()> {
        // Looking first spares the lock on a database that needs nothing.
        if self.link.read(|db| db.snapshot(|| schema::missing(db))).await?.is_empty() {
            return Ok(());
        }
        self.link.change(schema::complete).await
    }

    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()> {
        let (json, root, trash) = (json.to_vec(), root.clone(), trash.cloned());
        self.link.change(move |db| store(db, &json, &root, trash.as_ref())).await
    }

    async fn wipe(&self) -> Result<()> {
        self.link.change(schema::drop_all).await
    }
}

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
