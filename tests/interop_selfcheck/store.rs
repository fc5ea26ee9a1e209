//! The stores that volumes are made in.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::support::command::{kill_group, poll};
use super::support::normalise::{keyspace, tables};

/// Where a volume keeps its metadata.
pub trait Engine {
    fn url(&self) -> String;
    /// Takes ids away, as another client would.
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

impl Engine for Sqlite {
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

/// A server of this test's own.
pub struct Redis {
    server: Child,
    port: u16,
    _folder: TempDir,
}

impl Redis {
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.arg("--dir").arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let server =
            command.spawn().expect("redis-server is missing: apt-get install redis-server");
        let up = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(poll(Duration::from_secs(10), up), "redis-server does not answer");
        Self { server, port, _folder: folder }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        kill_group(&mut self.server);
    }
}

/// One of the server's databases.
pub struct Database<'a>(pub &'a Redis, pub u8);

impl Engine for Database<'_> {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/{}", self.0.port, self.1)
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
