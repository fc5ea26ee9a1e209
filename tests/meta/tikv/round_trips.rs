//! How many requests each operation needs without contention, including requests for timestamps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jfs::meta::AttrSet;
use jfs::meta::RenameMode;
use jfs::meta::record::Slice;
use jfs::meta::{Caller, EntryRef, Ino, Meta, Options, Registration, Timestamp};

use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::setting;

/// The lowest number of requests among these attempts counts.
const TRIES: usize = 6;

/// A volume on a separate server, so that no other requests are counted.
struct Counted {
    server: TikvServer,
    meta: Arc<Meta>,
}

impl Counted {
    async fn new() -> Self {
        Self::on(TikvServer::fresh_url).await
    }

    async fn in_several_regions() -> Self {
        Self::on(TikvServer::fresh_split_url).await
    }

    async fn on(fresh: fn(&TikvServer) -> String) -> Self {
        let server = TikvServer::start(&[]);
        let options = Options {
            no_background_jobs: true,
            // Background jobs would send requests as well.
            heartbeat: Duration::ZERO,
            skip_dir_mtime: Duration::from_hours(1),
            ..Options::default()
        };
        let meta = Meta::attach(&fresh(&server), options).await.expect("connect");
        meta.init(setting(), false).await.expect("format");
        meta.load().await.expect("load");
        meta.start(Registration::None).await.expect("start");
        meta.file("warm").await;
        meta.new_slice().await.expect("slice id");
        meta.rm("warm").await.expect("unlink");
        Self { server, meta }
    }

    /// Returns the number of requests by method. Flushes may run meanwhile, so this returns the
    /// lowest numbers of several attempts.
    async fn count<T>(&self, mut work: impl AsyncFnMut(usize) -> T) -> BTreeMap<String, u64> {
        let mut fewest: Option<BTreeMap<String, u64>> = None;
        for attempt in 0..TRIES {
            self.meta.flush().await.expect("flush");
            self.quiet().await;
            let before = self.server.calls();
            work(attempt).await;
            self.quiet().await;
            let spent: BTreeMap<String, u64> = self
                .server
                .calls()
                .into_iter()
                .map(|(call, n)| (call.clone(), n - before.get(&call).copied().unwrap_or(0)))
                .filter(|(_, n)| *n > 0)
                .collect();
            let total = |calls: &BTreeMap<String, u64>| calls.values().sum::<u64>();
            if fewest.as_ref().is_none_or(|fewest| total(&spent) < total(fewest)) {
                fewest = Some(spent);
            }
        }
        fewest.expect("some tries")
    }

    /// Waits until commits have finished their other keys in the background.
    async fn quiet(&self) {
        let mut calls = self.server.calls();
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.server.calls();
            if now == calls {
                return;
            }
            calls = now;
        }
        panic!("requests never end");
    }
}

fn calls(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(call, n)| ((*call).to_owned(), *n)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_takes_a_timestamp_and_one_or_two_reads() {
    let vol = Counted::new().await;
    let ino = vol.meta.file("f").await;
    let asked = vol.count(async |_| vol.meta.getattr(ino).await.expect("getattr")).await;
    assert_eq!(asked, calls(&[("KvBatchGet", 1), ("tso", 1)]));
    let root = Caller::root();
    let asked = vol.count(async |_| vol.meta.lookup(&root, Ino::ROOT, &name("f")).await.is_ok());
    assert_eq!(asked.await, calls(&[("KvBatchGet", 2), ("tso", 1)]));
    let missed = vol.count(async |_| vol.meta.lookup(&root, Ino::ROOT, &name("x")).await.is_err());
    assert_eq!(missed.await, calls(&[("KvBatchGet", 1), ("tso", 1)]));
}

/// Returns how often each operation reads the store before its commit.
async fn reads(vol: &Counted, commit: &[(&str, u64)]) -> BTreeMap<&'static str, u64> {
    let root = Caller::root();
    let mut reads = BTreeMap::new();
    let mut note = |what, mut asked: BTreeMap<String, u64>| {
        let count = |n: Option<u64>| n.unwrap_or(0);
        let read = count(asked.remove("KvBatchGet")) + count(asked.remove("KvScan"));
        assert_eq!(asked, calls(commit), "{what}");
        reads.insert(what, read);
    };
    let made = vol.count(async |i| {
        let called = name(format!("f{i}"));
        vol.meta.create(&root, Ino::ROOT, &called, 0o644, 0, true).await.expect("create")
    });
    note("create", made.await);
    let made = vol.count(async |i| {
        vol.meta.mkdir(&root, Ino::ROOT, &name(format!("d{i}")), 0o755, 0).await.expect("mkdir")
    });
    note("mkdir", made.await);
    let made = vol.count(async |i| {
        let (called, target) = (name(format!("s{i}")), "target".into());
        vol.meta.symlink(&root, Ino::ROOT, &called, target).await.expect("symlink")
    });
    note("symlink", made.await);
    let ino = vol.meta.file("written").await;
    let set = vol.count(async |i| {
        let mode = Some(if i % 2 == 0 { 0o600 } else { 0o640 });
        let set = AttrSet { mode, ..AttrSet::default() };
        vol.meta.setattr(&root, ino, set).await.expect("setattr")
    });
    note("setattr", set.await);
    let written = vol.count(async |_| {
        let id = vol.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 1, off: 0, len: 1 };
        vol.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
    });
    note("write", written.await);
    let moved = vol.count(async |i| {
        let (old, new) = (name(format!("f{i}")), name(format!("g{i}")));
        let (from, to) = (EntryRef::new(Ino::ROOT, &old), EntryRef::new(Ino::ROOT, &new));
        vol.meta.rename(&root, from, to, RenameMode::Replace).await.expect("rename")
    });
    note("rename", moved.await);
    // The file has another name, since otherwise its data would be deleted too.
    for i in 0..TRIES {
        vol.meta.hard_link(&format!("g{i}"), &format!("h{i}")).await.expect("link");
    }
    let gone = vol.count(async |i| {
        vol.meta.unlink(&root, Ino::ROOT, &name(format!("g{i}"))).await.expect("unlink");
    });
    note("unlink", gone.await);
    let gone = vol.count(async |i| {
        vol.meta.rmdir(&root, Ino::ROOT, &name(format!("d{i}"))).await.expect("rmdir");
    });
    note("rmdir", gone.await);
    reads
}

/// A timestamp, the reads, and one request that writes the keys and commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_one_region_takes_a_timestamp_its_reads_and_one_request() {
    let vol = Counted::new().await;
    let reads = reads(&vol, &[("KvPrewrite", 1), ("tso", 1)]).await;
    // A write reads the chunk to append to it. A removal reads the name, then the node, and then
    // the other names of a file, or whether a directory has entries.
    let expected = [
        ("create", 1),
        ("mkdir", 1),
        ("rename", 2),
        ("rmdir", 4),
        ("setattr", 1),
        ("symlink", 1),
        ("unlink", 3),
        ("write", 2),
    ];
    assert_eq!(reads, BTreeMap::from(expected));
}

/// Several regions take two timestamps and two phases. The second commit is that of the other keys,
/// for which the caller does not wait. Requests to several regions are sent at once, so they are
/// one round trip.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_several_regions_takes_two_phases() {
    let vol = Counted::in_several_regions().await;
    let root = Caller::root();
    let made = vol.count(async |i| {
        vol.meta.mkdir(&root, Ino::ROOT, &name(format!("d{i}")), 0o755, 0).await.expect("mkdir")
    });
    let made = made.await;
    assert_eq!(made.get("tso"), Some(&2), "{made:?}");
    assert!(made.get("KvCommit").is_some_and(|commits| *commits >= 2), "{made:?}");
}
