//! A volume for one test: a metadata store and a bucket, and the Go tools that check it.

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

/// The name of every volume; the prefix of its objects.
const NAME: &str = "volume";
const LIMIT: Duration = Duration::from_mins(1);

/// Warnings about the test servers, not about the volume.
const IGNORED_WARNINGS: [&str; 3] = [
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
    Ours,
}

pub struct TestVolume {
    pub url: String,
    /// The volume as the Go client's tools see it.
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

    /// Creates a volume, formatted by one of the clients; both take the same options.
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

    /// Opens a session of our client, with access to the bucket.
    pub async fn open(&self, options: Options) -> OurClient {
        let options = Options { no_background_jobs: true, ..options };
        let meta = Meta::connect(&self.url, options).await.unwrap();
        let bucket = Arc::new(self.bucket());
        meta.attach_slice_store(Arc::clone(&bucket) as _);
        meta.start(Registration::New).await.unwrap();
        OurClient { meta, bucket }
    }

    /// Connects our client without a session, as a tool does.
    pub async fn connect(&self) -> Arc<Meta> {
        let options = Options { no_background_jobs: true, ..Options::default() };
        Meta::connect(&self.url, options).await.unwrap()
    }

    /// Returns the normalised metadata store.
    pub fn stored(&self) -> Value {
        match self.file() {
            Some(file) => tables::normalise(&tables::read(&file)),
            None if self.is_tikv() => pairs::normalise(&TikvServer::shared().dump(&self.url)),
            None => keyspace::normalise(&keyspace::read(&self.url)),
        }
    }

    /// Returns the normalised dump of the Go client.
    pub fn dumped(&self) -> Value {
        dump::normalise(&self.go.dump())
    }

    /// Waits until the data of removed files is deleted, which happens after the removal.
    #[track_caller]
    pub fn wait_for_deletions(&self) {
        assert!(
            poll(Duration::from_secs(20), || self.pending() == 0),
            "the data of removed files is not deleted"
        );
    }

    /// Fails the test if the Go client finds anything wrong. Only for a volume without sessions.
    #[track_caller]
    pub fn assert_consistent(&self) {
        clean(self.go.run("fsck", &[]));
        clean(self.go.run("fsck", &["--path", "/", "--recursive"]));
        clean(self.go.run("fsck", &["--path", "/", "--recursive", "--sync-dir-stat"]));
        let mut gc = command(&["gc", &self.url]);
        // Includes young objects.
        gc.env("JFS_GC_SKIPPEDTIME", "0");
        let gc = clean(run(gc, LIMIT));
        let output = format!("{}{}", gc.stdout, gc.stderr);
        let nothing = ["0 pending delete (", " 0 leaked (", " 0 delslices (", " 0 delfiles ("];
        assert!(nothing.iter().all(|part| output.contains(part)), "{gc}");
        let blocks = format!("scanned {} objects", self.bucket().blocks());
        assert!(output.contains(&blocks), "not {blocks}: {gc}");
        assert_eq!(self.go.status()["Sessions"], serde_json::json!([]));
    }

    /// Has the Go client recount the usage of every directory.
    #[track_caller]
    pub fn repair(&self) {
        let options = ["--path", "/", "--recursive", "--repair", "--sync-dir-stat"];
        self.go.run("fsck", &options).ok();
    }

    /// Returns the file of a store in SQLite.
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

/// Runs our program.
#[track_caller]
pub fn jfs_mount(words: &[&str]) -> Finished {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_jfs-mount")));
    command.args(words);
    run(command, LIMIT)
}

/// Fails the test if a tool of the Go client failed, or printed a warning or an error.
#[track_caller]
pub fn clean(finished: Finished) -> Finished {
    let finished = finished.ok();
    let is_complaint = |line: &&str| {
        (line.contains("<ERROR>") || line.contains("<WARNING>"))
            && !IGNORED_WARNINGS.iter().any(|ignored| line.contains(ignored))
    };
    let complaint = finished.stderr.lines().chain(finished.stdout.lines()).find(is_complaint);
    assert!(complaint.is_none(), "{finished}");
    finished
}
