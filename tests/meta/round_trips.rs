//! The requests that each operation takes on Redis without concurrent clients.

use std::sync::Arc;

use jfs::meta::engine::redis::{self, RedisEngine};
use jfs::meta::record::{FileKind, Slice};
use jfs::meta::{
    Caller, EntryRef, Ino, Meta, Name, NodeKind, Options, Registration, RenameMode, Timestamp,
};
use nix::fcntl::{FallocateFlags, OFlag};

use crate::support::redis::RedisServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::{setting, setting_with_trash};

struct Counted {
    url: String,
    engine: Arc<RedisEngine>,
    meta: Arc<Meta>,
}

impl Counted {
    async fn new(setting: jfs::meta::record::Setting) -> Self {
        let url = RedisServer::shared().fresh_url();
        let engine = Arc::new(redis::connect(&url, &|_| None).await.expect("connect"));
        Self::start(url, engine, Some(setting)).await
    }

    /// Formats the volume if there is a setting.
    async fn start(
        url: String,
        engine: Arc<RedisEngine>,
        setting: Option<jfs::meta::record::Setting>,
    ) -> Self {
        let options = Options {
            no_background_jobs: true,
            // No heartbeat either: only the test's requests are counted.
            heartbeat: std::time::Duration::ZERO,
            ..Options::default()
        };
        let meta = Meta::new(engine.clone(), options);
        if let Some(setting) = setting {
            meta.init(setting, false).await.expect("format");
        }
        meta.load().await.expect("load");
        meta.start(Registration::None).await.expect("start");
        // Ids are allocated in batches, and the trash has a directory per hour: both exist already.
        meta.file("warm").await;
        meta.new_slice().await.expect("slice id");
        meta.rm("warm").await.expect("unlink");
        Self { url, engine, meta }
    }

    /// Another client of the same volume.
    async fn another(&self) -> Self {
        let engine = Arc::new(redis::connect(&self.url, &|_| None).await.expect("connect"));
        Self::start(self.url.clone(), engine, None).await
    }

    /// The requests of `work` alone: flushing runs concurrently, so the minimum of several runs
    /// counts.
    async fn count<T>(&self, mut work: impl AsyncFnMut(usize) -> T) -> u64 {
        let mut fewest = u64::MAX;
        for attempt in 0..5 {
            // Work left by the last run must not count for this one.
            self.meta.idle().await;
            let before = self.engine.round_trips();
            work(attempt).await;
            fewest = fewest.min(self.engine.round_trips() - before);
        }
        fewest
    }
}

#[tokio::test]
async fn getattr_and_lookup_take_one_request() {
    let vol = Counted::new(setting()).await;
    let ino = vol.meta.file("f").await;
    let root = Caller::root();
    assert_eq!(vol.count(async |_| vol.meta.getattr(ino).await.expect("getattr")).await, 1);
    let looked = vol.count(async |_| vol.meta.lookup(&root, Ino::ROOT, &name("f")).await.is_ok());
    assert_eq!(looked.await, 1);
    let missed = vol.count(async |_| vol.meta.lookup(&root, Ino::ROOT, &name("x")).await.is_err());
    assert_eq!(missed.await, 1);
}

#[tokio::test]
async fn creating_takes_one_request_in_a_known_directory() {
    let vol = Counted::new(setting()).await;
    let root = Caller::root();
    let made = vol.count(async |i| {
        let called = name(format!("f{i}"));
        vol.meta.create(&root, Ino::ROOT, &called, 0o644, 0, true).await.expect("create")
    });
    assert_eq!(made.await, 1);
    let made = vol.count(async |i| {
        vol.meta.mkdir(&root, Ino::ROOT, &name(format!("d{i}")), 0o755, 0).await.expect("mkdir")
    });
    assert_eq!(made.await, 1);
    let made = vol.count(async |i| {
        let called = name(format!("l{i}"));
        vol.meta.symlink(&root, Ino::ROOT, &called, "t".into()).await.expect("symlink")
    });
    assert_eq!(made.await, 1);
}

#[tokio::test]
async fn creating_takes_two_requests_in_an_unknown_directory() {
    let vol = Counted::new(setting()).await;
    let root = Caller::root();
    let mut dirs = Vec::new();
    for i in 0..5 {
        dirs.push(vol.meta.dir(&format!("d{i}")).await);
    }
    // Another client, which has seen none of them.
    let vol = vol.another().await;
    let made = vol.count(async |i| {
        let called = name("f");
        vol.meta.create(&root, dirs[i], &called, 0o644, 0, true).await.expect("create")
    });
    assert_eq!(made.await, 2);
}

#[tokio::test]
async fn removing_takes_one_request_if_the_name_was_looked_up_and_two_otherwise() {
    for setting in [setting(), setting_with_trash()] {
        let vol = Counted::new(setting).await;
        let root = Caller::root();
        for i in 0..5 {
            vol.meta.file(&format!("f{i}")).await;
            vol.meta.file(&format!("g{i}")).await;
            vol.meta.dir(&format!("d{i}")).await;
        }
        // Another client, which has seen none of them.
        let vol = vol.another().await;
        let unlink =
            async |called| vol.meta.unlink(&root, Ino::ROOT, &called).await.expect("unlink");
        let unseen = vol.count(async |i| unlink(name(format!("f{i}"))).await);
        assert_eq!(unseen.await, 2);
        let looked_up = vol.count(async |i| {
            let called = name(format!("g{i}"));
            vol.meta.lookup(&root, Ino::ROOT, &called).await.expect("lookup");
            unlink(called).await;
        });
        assert_eq!(looked_up.await, 1 + 1);
        // Whether it is empty must be read.
        let emptied = vol.count(async |i| {
            let called = name(format!("d{i}"));
            vol.meta.lookup(&root, Ino::ROOT, &called).await.expect("lookup");
            vol.meta.rmdir(&root, Ino::ROOT, &called).await.expect("rmdir");
        });
        assert_eq!(emptied.await, 1 + 2);
    }
}

#[tokio::test]
async fn renaming_takes_one_request_if_both_names_were_looked_up_and_two_otherwise() {
    let vol = Counted::new(setting()).await;
    let root = Caller::root();
    let dir = vol.meta.dir("d").await;
    for i in 0..5 {
        for stem in ["f", "g"] {
            vol.meta.file(&format!("{stem}{i}")).await;
            vol.meta.file(&format!("d/{stem}{i}")).await;
        }
    }
    // Another client, which has seen none of them.
    let vol = vol.another().await;
    let rename = async |called: &Name| {
        let (from, to) = (EntryRef::new(Ino::ROOT, called), EntryRef::new(dir, called));
        vol.meta.rename(&root, from, to, RenameMode::Replace).await.expect("rename");
    };
    let unseen = vol.count(async |i| rename(&name(format!("f{i}"))).await);
    assert_eq!(unseen.await, 2);
    let looked_up = vol.count(async |i| {
        let called = name(format!("g{i}"));
        for place in [Ino::ROOT, dir] {
            vol.meta.lookup(&root, place, &called).await.expect("lookup");
        }
        rename(&called).await;
    });
    assert_eq!(looked_up.await, 2 + 1);
}

#[tokio::test]
async fn linking_takes_one_request_if_the_node_is_known() {
    let vol = Counted::new(setting()).await;
    let (ino, root) = (vol.meta.file("f").await, Caller::root());
    let linked = vol.count(async |i| {
        vol.meta.link(&root, ino, Ino::ROOT, &name(format!("l{i}"))).await.expect("link");
    });
    assert_eq!(linked.await, 1);
}

#[tokio::test]
async fn changes_by_another_client_cost_requests_and_nothing_else() {
    let vol = Counted::new(setting()).await;
    let other = vol.another().await;
    let root = Caller::root();
    for i in 0..5 {
        vol.meta.file(&format!("f{i}")).await;
    }
    let mut gone = Vec::new();
    let removed = vol.count(async |i| {
        let (called, moved) = (name(format!("f{i}")), name(format!("m{i}")));
        vol.meta.lookup(&root, Ino::ROOT, &called).await.expect("lookup");
        let (from, to) = (EntryRef::new(Ino::ROOT, &called), EntryRef::new(Ino::ROOT, &moved));
        other.meta.rename(&root, from, to, RenameMode::Replace).await.expect("rename");
        gone.push(other.meta.file(&format!("f{i}")).await);
        vol.meta.unlink(&root, Ino::ROOT, &called).await.expect("unlink");
    });
    assert_eq!(removed.await, 1 + 3);
    for (i, ino) in gone.into_iter().enumerate() {
        assert!(other.meta.getattr(ino).await.is_err(), "the file that had the name at the end");
        let moved = name(format!("m{i}"));
        other.meta.lookup(&root, Ino::ROOT, &moved).await.expect("the one that had it before");
    }
}

#[tokio::test]
async fn committing_a_write_takes_one_request_without_other_writers() {
    let vol = Counted::new(setting()).await;
    let ino = vol.meta.file("f").await;
    let written = vol.count(async |i| {
        let id = vol.meta.new_slice().await.expect("slice id");
        let pos = u32::try_from(i).expect("small") * 100;
        let slice = Slice { pos, id, size: 100, off: 0, len: 100 };
        vol.meta.write(ino, 0, pos, slice, Timestamp::now()).await.expect("write");
    });
    assert_eq!(written.await, 1);
}

#[tokio::test]
async fn a_read_takes_one_request_and_none_if_the_chunk_is_known() {
    let vol = Counted::new(setting()).await;
    let ino = vol.meta.file("f").await;
    vol.meta.fill("f", 100).await;
    let read = vol.count(async |_| vol.meta.read(ino, 0).await.expect("read"));
    assert_eq!(read.await, 1);
    let hole = vol.count(async |_| vol.meta.read(ino, 1).await.expect("read"));
    assert_eq!(hole.await, 1);
    vol.meta.open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.expect("open");
    let read = vol.count(async |_| vol.meta.read(ino, 0).await.expect("read"));
    assert_eq!(read.await, 0);
}

#[tokio::test]
async fn opening_takes_one_request_and_closing_none() {
    let vol = Counted::new(setting()).await;
    let (ino, root) = (vol.meta.file("f").await, Caller::root());
    let opened = vol.count(async |_| {
        vol.meta.open_file(&root, ino, OFlag::O_RDWR).await.expect("open");
        vol.meta.close_file(ino).await.expect("close");
    });
    assert_eq!(opened.await, 1);
}

#[tokio::test]
async fn resizing_and_punching_take_two_requests() {
    let vol = Counted::new(setting()).await;
    let (ino, root) = (vol.meta.file("f").await, Caller::root());
    let resized = vol.count(async |i| {
        vol.meta.truncate(&root, ino, 1000 << (26 * (i % 2))).await.expect("truncate");
    });
    assert_eq!(resized.await, 2);
    let mode = FallocateFlags::FALLOC_FL_ZERO_RANGE;
    let zeroed = vol.count(async |_| {
        vol.meta.fallocate(&root, ino, mode, 0, 500).await.expect("fallocate");
    });
    assert_eq!(zeroed.await, 2);
}

#[tokio::test]
async fn a_listing_with_attrs_takes_two_requests_per_4096_entries() {
    const COUNT: u64 = 20_000;
    let vol = Counted::new(setting()).await;
    let dir = vol.meta.dir("d").await;
    let root = Caller::root();
    let node = NodeKind { kind: FileKind::Fifo, rdev: 0 };
    let names: Vec<_> = (0..COUNT).map(|i| name(i.to_string())).collect();
    for some in names.chunks(64) {
        let made = some.iter().map(|called| vol.meta.mknod(&root, dir, called, node, 0o600, 0));
        for made in futures::future::join_all(made).await {
            made.expect("mknod");
        }
    }
    let requests = vol.count(async |_| {
        assert_eq!(vol.meta.entries(dir, true).await.expect("listing").len() as u64, COUNT);
    });
    let pages = COUNT.div_ceil(4096);
    // A scan step may return slightly fewer entries than requested.
    assert!(requests.await <= 2 * (pages + 2), "{pages} pages");
}
