//! Who makes something in a directory, and who takes the directory away: one of them wins, though
//! neither writes a key that the other writes.

use std::sync::Arc;
use std::time::Duration;

use jfs::Error;
use jfs::meta::engine::kv::KvEngine;
use jfs::meta::engine::{Engine, connect, tikv};
use jfs::meta::{Caller, Ino, Meta, Options, Registration};

use crate::support::aside::Aside;
use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting};

/// Two clients that leave a directory's times alone, so that only its entries are written.
struct Rivals {
    maker: Arc<Meta>,
    remover: Arc<Meta>,
    url: String,
    dir: Ino,
}

impl Rivals {
    async fn new() -> Self {
        Self::with(async |url| connect(url).await.expect("connect")).await
    }

    /// Whose transactions take no part in the seats of a directory.
    async fn without_seats() -> Self {
        Self::with(async |url| {
            let store = tikv::open(url, &|_| None).await.expect("connect");
            Arc::new(KvEngine::new(Arc::new(Aside(store)))) as Arc<dyn Engine>
        })
        .await
    }

    async fn with(engine: impl AsyncFn(&str) -> Arc<dyn Engine>) -> Self {
        // In one region, so that a transaction's keys are all in one request.
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
        let (maker, remover) = (client().await, client().await);
        let dir = maker.dir("d").await;
        // Ids are there already.
        maker.file("warm").await;
        Self { maker, remover, url: volume.url.clone(), dir }
    }

    /// Holds the next transaction that writes the key back while the test goes on.
    fn hold(&self, dir: Ino, entry: &str) {
        let key = [b"A".as_slice(), &dir.0.to_le_bytes(), b"D", entry.as_bytes()].concat();
        TikvServer::shared().fail_key(&self.url, &key, "KvPrewrite", "delay", 1);
    }

    async fn make(maker: Arc<Meta>, dir: Ino) -> Result<(), Error> {
        maker.create(&Caller::root(), dir, &name("f"), 0o644, 0, true).await.map(drop)
    }

    /// The prewrites that the server has seen: the one that is held is among them.
    fn prewrites() -> u64 {
        TikvServer::shared().calls().get("KvPrewrite").copied().unwrap_or(0)
    }
}

/// Waits until one more transaction has reached the server.
async fn arrived(before: u64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while Rivals::prewrites() <= before {
        assert!(std::time::Instant::now() < deadline, "nothing arrives");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_made_in_a_directory_that_is_gone_is_not_found() {
    let rivals = Rivals::new().await;
    rivals.hold(rivals.dir, "f");
    let before = Rivals::prewrites();
    let made = tokio::spawn(Rivals::make(rivals.maker.clone(), rivals.dir));
    arrived(before).await;
    rivals.remover.rm_dir("d").await.expect("an empty directory");
    assert!(matches!(made.await.expect("no panic"), Err(Error::NotFound)));
    let left = TikvServer::shared().dump(&rivals.url);
    let of_dir = [b"A".as_slice(), &rivals.dir.0.to_le_bytes()].concat();
    assert!(!left.keys().any(|key| key.starts_with(&of_dir)), "nothing of it is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_got_a_file_meanwhile_is_not_empty() {
    let rivals = Rivals::new().await;
    rivals.hold(Ino::ROOT, "d");
    let before = Rivals::prewrites();
    let remover = rivals.remover.clone();
    let removed = tokio::spawn(async move { remover.rm_dir("d").await });
    arrived(before).await;
    Rivals::make(rivals.maker.clone(), rivals.dir).await.expect("the directory is still there");
    assert!(matches!(removed.await.expect("no panic"), Err(Error::NotEmpty)));
    assert_eq!(rivals.maker.names("d").await, ["f"]);
}

/// What the two tests above would show if nobody took a seat: the file is made, and nobody will
/// ever find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_seats_a_file_is_made_in_a_directory_that_is_gone() {
    let rivals = Rivals::without_seats().await;
    rivals.hold(rivals.dir, "f");
    let before = Rivals::prewrites();
    let made = tokio::spawn(Rivals::make(rivals.maker.clone(), rivals.dir));
    arrived(before).await;
    rivals.remover.rm_dir("d").await.expect("an empty directory");
    made.await.expect("no panic").expect("nothing stands in the way");
    let left = TikvServer::shared().dump(&rivals.url);
    let of_dir = [b"A".as_slice(), &rivals.dir.0.to_le_bytes()].concat();
    let left: Vec<_> = left.keys().filter(|key| key.starts_with(&of_dir)).collect();
    assert_eq!(left, [&[&of_dir[..], b"Df"].concat()], "an entry of no directory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_seats_a_directory_is_removed_though_it_got_a_file() {
    let rivals = Rivals::without_seats().await;
    rivals.hold(Ino::ROOT, "d");
    let before = Rivals::prewrites();
    let remover = rivals.remover.clone();
    let removed = tokio::spawn(async move { remover.rm_dir("d").await });
    arrived(before).await;
    Rivals::make(rivals.maker.clone(), rivals.dir).await.expect("the directory is still there");
    removed.await.expect("no panic").expect("nothing stands in the way");
    assert!(rivals.maker.names("").await.iter().all(|name| name != "d"));
}

/// Seats have no values: another client must not find anything beside the records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_leave_nothing_behind() {
    let rivals = Rivals::new().await;
    Rivals::make(rivals.maker.clone(), rivals.dir).await.expect("create");
    rivals.maker.rm("d/f").await.expect("unlink");
    rivals.remover.rm_dir("d").await.expect("rmdir");
    let left = TikvServer::shared().dump(&rivals.url);
    let strange = left.keys().find(|key| {
        let is_attr = key.first() == Some(&b'A') && key.get(9) == Some(&b'I');
        is_attr && key.len() != 10
    });
    assert_eq!(strange, None);
}
