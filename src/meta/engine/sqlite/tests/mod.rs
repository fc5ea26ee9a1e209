//! Tests of the engine as a whole, on database files.

mod calls;
mod damage;
mod faults;
mod go_client;
mod group_commit;
mod guards;
mod opening;
mod records;
mod rows;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;

use super::SqliteEngine;
use crate::error::Result;
use crate::meta::engine::{
    AclRecords as _, Change, ChangeLogRecords as _, CommitError, CounterRecords as _, Engine,
    GarbageRecords as _, Key, Listings as _, Record, SessionRecords as _, SettingRecords as _,
    UsageRecords as _,
};
use crate::meta::record::{Attr, Entry, FileKind, Slice};
use crate::meta::{Ino, Name, SliceId, Timestamp};

/// A new database file with a formatted volume.
struct Volume {
    engine: Arc<SqliteEngine>,
    path: PathBuf,
    _dir: TempDir,
}

impl Volume {
    async fn new() -> Self {
        Self::with("").await
    }

    /// With parameters, as in `?_timeout=50`.
    async fn with(parameters: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.db");
        let engine = open(&path, parameters).await.unwrap();
        engine.prepare().await.unwrap();
        let (root, trash) = (dir_attr(0o777), dir_attr(0o555));
        engine.store_setting(b"{}", &root, Some(&trash)).await.unwrap();
        Self { engine: Arc::new(engine), path, _dir: dir }
    }

    /// Opens a second connection, as another process would.
    fn other_connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.path).unwrap()
    }

    /// Returns the one value that a query selects.
    fn value<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        self.other_connection().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    async fn read(&self, key: Key) -> Record {
        self.engine.read(&[key]).await.unwrap().pop().unwrap()
    }

    /// Commits without guards.
    async fn apply(&self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        self.engine.begin().commit(changes).await
    }
}

async fn open(path: &Path, parameters: &str) -> Result<SqliteEngine> {
    let url = format!("sqlite3://{}{parameters}", path.display());
    SqliteEngine::open(&url, crate::policy::Policy::unrestricted()).await
}

fn dir_attr(mode: u16) -> Attr {
    Attr::new(FileKind::Dir, mode, 0, 0, Ino::ROOT, time())
}

fn file_attr() -> Attr {
    Attr::new(FileKind::File, 0o644, 1000, 100, Ino::ROOT, time())
}

fn time() -> Timestamp {
    Timestamp { sec: 1_794_799_715, nsec: 165_759_392 }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn file(ino: u64) -> Entry {
    Entry { kind: FileKind::File, ino: Ino(ino) }
}

fn slice(id: u64, len: u32) -> Slice {
    Slice { pos: 0, id: SliceId(id), size: len, off: 0, len }
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}
