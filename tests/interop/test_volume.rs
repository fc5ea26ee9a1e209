//! Where a volume lives: a metadata store and a bucket, and the tools that judge it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jfs::meta::{Meta, Options, Registration};
use serde_json::Value;
use tempfile::TempDir;

use crate::bucket::Bucket;
use crate::script::on_client::OurClient;
use crate::support::command::{Finished, poll, run};
use crate::support::juicefs::{Volume, command, juicefs};
use crate::support::normalise::{dump, keyspace, pairs, tables};
use crate::support::redis::RedisServer;
use crate::support::tikv::TikvServer;

/// The name of every volume here; its objects lie below it.
const NAME: &str = "volume";
const LIMIT: Duration = Duration::from_mins(1);

/// Warnings about the servers of the test, not about the volume.
const USUAL: [&str; 3] = [
    "AOF is not enabled",
    "Set storage tier: not supported",
    "The latency to database is too high",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Redis,
    Sqlite,
    Tikv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Go,
    OurClient,
}

pub struct TestVolume {
    pub url: String,
    /// The Go client's view of it.
    pub go: Volume,
    folder: TempDir,
}

impl TestVolume {
    pub fn new(store: Store) -> Self {
        let folder = TempDir::new().unwrap();
        let url = match store {
            Store::Redis => RedisServer::shared().fresh_url(),
            Store::Sqlite => format!("sqlite3://{}/meta.db", folder.path().display()),
            Store::Tikv => TikvServer::shared().fresh_split_url(),
        };
        Self { go: Volume::existing(&url), url, folder }
    }

    /// A fresh store, formatted by one of the clients; both take the same options.
    pub fn formatted(store: Store, by: Client, options: &[&str]) -> Self {
        let volume = Self::new(store);
        let bucket = volume.bucket_folder();
        let fixed = ["format", &volume.url, NAME, "--storage", "file", "--bucket"];
        let bucket = bucket.to_str().unwrap();
        let words = [&fixed[..], &[bucket], options].concat();
        match by {
            Client::Go => juicefs(&words).ok(),
            Client::Ours => jfs_mount(&words).ok(),
        };
        volume
    }

    pub fn bucket_folder(&self) -> PathBuf {
        self.folder.path().join("bucket")
    }

    pub fn bucket(&self) -> Bucket {
        Bucket::new(&self.bucket_folder(), NAME)
    }

    /// A session of ours with a data side.
    pub async fn open(&self, options: Options) -> OurClient {
        let options = Options { no_background_jobs: true, ..options };
        let meta = Meta::connect(&self.url, options).await.unwrap();
        let bucket = Arc::new(self.bucket());
        meta.attach_slice_store(Arc::clone(&bucket) as _);
        meta.start(Registration::New).await.unwrap();
        OurClient { meta, bucket }
    }

    /// A client of ours without a session, as a tool is.
    pub async fn connect(&self) -> Arc<Meta> {
        let options = Options { no_background_jobs: true, ..Options::default() };
        Meta::connect(&self.url, options).await.unwrap()
    }

    /// The metadata store, normalised.
    pub fn stored(&self) -> Value {
        match self.file() {
            Some(file) => tables::normalise(&tables::read(&file)),
            None if self.is_tikv() => pairs::normalise(&TikvServer::shared().dump(&self.url)),
            None => keyspace::normalise(&keyspace::read(&self.url)),
        }
    }

    /// The dump of the Go client, normalised.
    pub fn dumped(&self) -> Value {
        dump::normalise(&self.go.dump())
    }

    /// Waits until the data of removed files is gone, which happens after the removal.
    #[track_caller]
    pub fn wait_for_deletions(&self) {
        assert!(poll(Duration::from_secs(20), || self.pending() == 0), "removed files stay");
    }

    /// Fails the test unless the Go client finds nothing wrong. Only for a volume without sessions.
    #[track_caller]
    pub fn assert_consistent(&self) {
        clean(self.go.run("fsck", &[]));
        clean(self.go.run("fsck", &["--path", "/", "--recursive"]));
        clean(self.go.run("fsck", &["--path", "/", "--recursive", "--sync-dir-stat"]));
        let mut gc = command(&["gc", &self.url]);
        // Young objects count as well.
        gc.env("JFS_GC_SKIPPEDTIME", "0");
        let gc = clean(run(gc, LIMIT));
        let said = format!("{}{}", gc.stdout, gc.stderr);
        let nothing = ["0 pending delete (", " 0 leaked (", " 0 delslices (", " 0 delfiles ("];
        assert!(nothing.iter().all(|part| said.contains(part)), "{gc}");
        let blocks = format!("scanned {} objects", self.bucket().blocks());
        assert!(said.contains(&blocks), "not {blocks}: {gc}");
        assert_eq!(self.go.status()["Sessions"], serde_json::json!([]));
    }

    /// Has the Go client count the usage of every directory again.
    #[track_caller]
    pub fn repair(&self) {
        let options = ["--path", "/", "--recursive", "--repair", "--sync-dir-stat"];
        self.go.run("fsck", &options).ok();
    }

    /// The file of a store in SQLite.
    pub fn file(&self) -> Option<PathBuf> {
        self.url.strip_prefix("sqlite3://").map(PathBuf::from)
    }

    fn is_tikv(&self) -> bool {
        self.url.starts_with("tikv://")
    }

    fn pending(&self) -> u64 {
        if self.is_tikv() {
            let all = TikvServer::shared().dump(&self.url);
            return all.keys().filter(|key| key[0] == b'D').count() as u64;
        }
        if let Some(file) = self.file() {
            return tables::read(&file)["delfile"].len() as u64;
        }
        let mut server = redis::Client::open(&*self.url).unwrap().get_connection().unwrap();
        redis::cmd("ZCARD").arg("delfiles").query(&mut server).unwrap()
    }
}

/// Our program.
#[track_caller]
pub fn jfs_mount(words: &[&str]) -> Finished {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_jfs-mount")));
    command.args(words);
    run(command, LIMIT)
}

/// A tool of the Go client that has nothing to complain about.
#[track_caller]
pub fn clean(finished: Finished) -> Finished {
    let finished = finished.ok();
    let complains = |line: &&str| {
        (line.contains("<ERROR>") || line.contains("<WARNING>"))
            && !USUAL.iter().any(|usual| line.contains(usual))
    };
    let complaint = finished.stderr.lines().chain(finished.stdout.lines()).find(complains);
    assert!(complaint.is_none(), "{finished}");
    finished
}
