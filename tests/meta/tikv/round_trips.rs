//! How many requests each operation costs when nobody interferes. Timestamps are requests too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jfs::meta::record::Slice;
use jfs::meta::{Caller, Ino, Meta, Options, Registration, Timestamp};

use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::setting;

/// A volume on a server of its own, where nobody else's requests are counted.
struct Counted {
    server: TikvServer,
    meta: Arc<Meta>,
}

impl Counted {
    async fn new() -> Self {
        let server = TikvServer::start(&[]);
        let options = Options {
            no_background_jobs: true,
            // Only what the test asks for is counted.
            heartbeat: Duration::ZERO,
            skip_dir_mtime: Duration::from_hours(1),
            ..Options::default()
        };
        let meta = Meta::attach(&server.fresh_url(), options).await.expect("connect");
        meta.init(setting(), false).await.expect("format");
        meta.load().await.expect("load");
        meta.start(Registration::None).await.expect("start");
        meta.file("warm").await;
        meta.new_slice().await.expect("slice id");
        meta.rm("warm").await.expect("unlink");
        Self { server, meta }
    }

    /// Requests by method; flushing runs beside it, so the fewest of some tries count.
    async fn count<T>(&self, mut work: impl AsyncFnMut(usize) -> T) -> BTreeMap<String, u64> {
        let mut fewest: Option<BTreeMap<String, u64>> = None;
        for attempt in 0..6 {
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

    /// Waits until the keys that a commit finishes in the background are done.
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

/// A timestamp, the read and the commit; the second commit is that of the other keys, which nobody
/// waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn making_takes_a_transaction() {
    let vol = Counted::new().await;
    let root = Caller::root();
    let transaction = calls(&[("KvBatchGet", 1), ("KvCommit", 2), ("KvPrewrite", 1), ("tso", 2)]);
    let made = vol.count(async |i| {
        let called = name(format!("f{i}"));
        vol.meta.create(&root, Ino::ROOT, &called, (0o644, 0), true).await.expect("create")
    });
    assert_eq!(made.await, transaction);
    let made = vol.count(async |i| {
        vol.meta.mkdir(&root, Ino::ROOT, &name(format!("d{i}")), 0o755, 0).await.expect("mkdir")
    });
    assert_eq!(made.await, transaction);
    let ino = vol.meta.file("written").await;
    let written = vol.count(async |_| {
        let id = vol.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 1, off: 0, len: 1 };
        vol.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
    });
    // The node for the plan, the chunk for the record to go behind.
    let twice = calls(&[("KvBatchGet", 2), ("KvCommit", 2), ("KvPrewrite", 1), ("tso", 2)]);
    assert_eq!(written.await, twice);
}
