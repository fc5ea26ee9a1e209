//! The setting: row `format` of table `jfs_setting`, and the initial rows of a new volume.

use async_trait::async_trait;
use rusqlite::params;

use super::counter;
use super::node;
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::SettingRecords;
use crate::meta::engine::sqlite::columns::{Columns, Text};
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::engine::sqlite::{SqliteEngine, schema};
use crate::meta::record::Attr;

#[async_trait]
impl SettingRecords for SqliteEngine {
    async fn load_setting(&self) -> Result<Option<Vec<u8>>> {
        self.connections.read(|db| db.snapshot(|| load(db))).await
    }

    async fn prepare(&self) -> Result<()> {
        // Checking first avoids the lock on a database that needs nothing.
        if self.connections.read(|db| db.snapshot(|| schema::missing(db))).await?.is_empty() {
            return Ok(());
        }
        self.connections.write(schema::migrate).await
    }

    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()> {
        let (json, root, trash) = (json.to_vec(), root.clone(), trash.cloned());
        self.connections.write(move |db| store(db, &json, &root, trash.as_ref())).await
    }

    async fn wipe(&self) -> Result<()> {
        self.connections.write(schema::drop_all).await
    }
}

/// Returns `None` for a database without a volume.
fn load(db: &Db) -> DbResult<Option<Vec<u8>>> {
    if !db.has_table("jfs_setting")? {
        return Ok(None);
    }
    let sql = "SELECT value FROM jfs_setting WHERE name = 'format'";
    db.one(sql, [], |row| Ok(Columns::new(row, &"table setting").bytes(0)?.to_vec()))
}

fn store(db: &Db, json: &[u8], root: &Attr, trash: Option<&Attr>) -> DbResult<()> {
    if let Some(trash) = trash {
        insert_if_absent(db, Ino::TRASH, trash)?;
    }
    let sql = "UPDATE jfs_setting SET value = ?1 WHERE name = 'format'";
    if db.exec(sql, [Text(json)])? > 0 {
        return Ok(());
    }
    let sql = "INSERT INTO jfs_setting (name, value) VALUES ('format', ?1)";
    db.exec(sql, params![Text(json)])?;
    insert_if_absent(db, Ino::ROOT, root)?;
    for (name, value) in counter::INITIAL {
        counter::insert(db, name, value)?;
    }
    Ok(())
}

fn insert_if_absent(db: &Db, ino: Ino, attr: &Attr) -> DbResult<()> {
    if node::attr(db, ino)?.is_none() {
        node::put(db, ino, attr)?;
    }
    Ok(())
}
