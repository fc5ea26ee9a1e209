//! The metadata stores of the volumes.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::support::normalise::{keyspace, tables};
use super::support::redis::RedisServer;

/// The metadata store of one volume.
pub trait MetadataStore {
    fn url(&self) -> String;
    /// Advances the id counters, as another client would.
    fn burn_ids(&self, count: u32);
    fn normalised(&self) -> Value;
}

pub struct Sqlite(TempDir);

impl Sqlite {
    pub fn fresh() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("meta.db")
    }
}

impl MetadataStore for Sqlite {
    fn url(&self) -> String {
        format!("sqlite3://{}", self.file().display())
    }

    fn burn_ids(&self, count: u32) {
        let db = rusqlite::Connection::open(self.file()).unwrap();
        let update =
            "UPDATE jfs_counter SET value = value + ?1 WHERE name IN ('nextInode', 'nextChunk')";
        assert_eq!(db.execute(update, [count]).unwrap(), 2);
    }

    fn normalised(&self) -> Value {
        tables::normalise(&tables::read(&self.file()))
    }
}

/// A database of the shared server.
pub struct Redis(String);

impl Redis {
    pub fn fresh() -> Self {
        Self(RedisServer::shared().fresh_url())
    }
}

impl MetadataStore for Redis {
    fn url(&self) -> String {
        self.0.clone()
    }

    fn burn_ids(&self, count: u32) {
        let mut server = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        for counter in ["nextinode", "nextchunk"] {
            redis::cmd("INCRBY").arg(counter).arg(count).exec(&mut server).unwrap();
        }
    }

    fn normalised(&self) -> Value {
        keyspace::normalise(&keyspace::read(&self.url()))
    }
}
