//! Creating a file in a directory while another client removes the directory: one of them wins,
//! although they write no key in common.

use std::sync::Arc;
use std::time::Duration;

use jfs::Error;
use jfs::meta::engine::kv::KvEngine;
use jfs::meta::engine::{Engine, connect, tikv};
use jfs::meta::{Caller, Ino, Meta, Options, Registration};

use crate::support::no_shared_locks::WithoutSharedLocks;
use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting};

/// Two clients that do not update a directory's times, so that only its entries are written.
struct TwoClients {
    creator: Arc<Meta>,
    remover: Arc<Meta>,
    url: String,
    dir: Ino,
}

impl TwoClients {
    async fn new() -> Self {
        Self::with(async |url| connect(url).await.expect("connect")).await
    }

    /// With transactions that do not take shared locks on directories.
    async fn without_locks() -> Self {
        Self::with(async |url| {
            let store = tikv::open(url, &|_| None).await.expect("connect");
            Arc::new(KvEngine::new(Arc::new(WithoutSharedLocks(store)))) as Arc<dyn Engine>
        })
        .await
    }

    async fn with(engine: impl AsyncFn(&str) -> Arc<dyn Engine>) -> Self {
        // In one region, so that all keys of a transaction are in one request.
        let volume = Volume::tikv_in_one_region_with(setting()).await;
        let client = async || {
            let skip_dir_mtime = Duration::from_hours(1);
            let options =
                Options { skip_dir_mtime, no_background_jobs: true, ..Options::default() };
            let meta = Meta::new(engine(&volume.url).await, options);
            meta.load().await.expect("load");
            meta.start(Registration::New).await.expect("session");
            meta
        };
        let (creator, remover) = (client().await, client().await);
        let dir = creator.dir("d").await;
        // Allocates ids in advance.
        creator.file("warm").await;
        Self { creator, remover, url: volume.url.clone(), dir }
    }

    /// Delays the next transaction that writes the entry while the test continues.
    fn delay(&self, dir: Ino, entry: &str) {
        let key = [b"A".as_slice(), &dir.0.to_le_bytes(), b"D", entry.as_bytes()].concat();
        TikvServer::shared().fail_key(&self.url, &key, "KvPrewrite", "delay", 1);
    }

    async fn create(creator: Arc<Meta>, dir: Ino) -> Result<(), Error> {
        creator.create(&Caller::root(), dir, &name("f"), 0o644, 0, true).await.map(drop)
    }

    /// Returns how many prewrites the server has received, including a delayed one.
    fn prewrites() -> u64 {
        TikvServer::shared().calls().get("KvPrewrite").copied().unwrap_or(0)
    }
}

/// Waits until one more transaction has reached the server.
async fn wait_for_prewrite(before: u64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while TwoClients::prewrites() <= before {
        assert!(std::time::Instant::now() < deadline, "no prewrite arrives");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_a_file_in_a_removed_directory_fails() {
    let clients = TwoClients::new().await;
    clients.delay(clients.dir, "f");
    let before = TwoClients::prewrites();
    let created = tokio::spawn(TwoClients::create(clients.creator.clone(), clients.dir));
    wait_for_prewrite(before).await;
    clients.remover.rm_dir("d").await.expect("an empty directory");
    assert!(matches!(created.await.expect("no panic"), Err(Error::NotFound)));
    let left = TikvServer::shared().dump(&clients.url);
    let of_dir = [b"A".as_slice(), &clients.dir.0.to_le_bytes()].concat();
    assert!(!left.keys().any(|key| key.starts_with(&of_dir)), "records of the directory are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_a_directory_that_got_a_file_fails() {
    let clients = TwoClients::new().await;
    clients.delay(Ino::ROOT, "d");
    let before = TwoClients::prewrites();
    let remover = clients.remover.clone();
    let removed = tokio::spawn(async move { remover.rm_dir("d").await });
    wait_for_prewrite(before).await;
    TwoClients::create(clients.creator.clone(), clients.dir)
        .await
        .expect("the directory still exists");
    assert!(matches!(removed.await.expect("no panic"), Err(Error::NotEmpty)));
    assert_eq!(clients.creator.names("d").await, ["f"]);
}

/// What would happen in the first test without shared locks: the file is created, but it cannot be
/// found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_locks_a_file_is_created_in_a_removed_directory() {
    let clients = TwoClients::without_locks().await;
    clients.delay(clients.dir, "f");
    let before = TwoClients::prewrites();
    let created = tokio::spawn(TwoClients::create(clients.creator.clone(), clients.dir));
    wait_for_prewrite(before).await;
    clients.remover.rm_dir("d").await.expect("an empty directory");
    created.await.expect("no panic").expect("no conflict");
    let left = TikvServer::shared().dump(&clients.url);
    let of_dir = [b"A".as_slice(), &clients.dir.0.to_le_bytes()].concat();
    let left: Vec<_> = left.keys().filter(|key| key.starts_with(&of_dir)).collect();
    assert_eq!(left, [&[&of_dir[..], b"Df"].concat()], "an entry without a directory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_locks_a_directory_with_a_new_file_is_removed() {
    let clients = TwoClients::without_locks().await;
    clients.delay(Ino::ROOT, "d");
    let before = TwoClients::prewrites();
    let remover = clients.remover.clone();
    let removed = tokio::spawn(async move { remover.rm_dir("d").await });
    wait_for_prewrite(before).await;
    TwoClients::create(clients.creator.clone(), clients.dir)
        .await
        .expect("the directory still exists");
    removed.await.expect("no panic").expect("no conflict");
    assert!(clients.creator.names("").await.iter().all(|name| name != "d"));
}

/// Slots have no values: other clients must not find any keys except records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_leave_no_keys_behind() {
    let clients = TwoClients::new().await;
    TwoClients::create(clients.creator.clone(), clients.dir).await.expect("create");
    clients.creator.rm("d/f").await.expect("unlink");
    clients.remover.rm_dir("d").await.expect("rmdir");
    let left = TikvServer::shared().dump(&clients.url);
    let unexpected = left.keys().find(|key| {
        let is_attr = key.first() == Some(&b'A') && key.get(9) == Some(&b'I');
        is_attr && key.len() != 10
    });
    assert_eq!(unexpected, None);
}
