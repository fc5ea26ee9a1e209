//! Every fault of the servers ends in success or in a clean error, never in half an operation.

use std::sync::Arc;

use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Counter, Slice};
use jfs::meta::{Caller, Meta, Sid, Timestamp};

use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting};

/// What passes after one or two attempts of the library or of ours.
const PASSING: [&str; 8] =
    ["refuse", "lose", "delay", "not-leader", "no-leader", "stale-epoch", "busy", "new-leader"];
/// More than the library tries, so that the request is given up.
pub const ALWAYS: u32 = 11;

/// A client that flushes nothing on its own, so that the next commit is the test's.
pub struct Wire {
    pub meta: Arc<Meta>,
    pub url: String,
    _volume: Volume,
}

impl Wire {
    /// In several regions, where a commit takes two phases.
    pub async fn new() -> Self {
        Self::over(Volume::tikv_with(setting()).await).await
    }

    /// In one region, where it takes one.
    pub async fn in_one_region() -> Self {
        Self::over(Volume::tikv_in_one_region_with(setting()).await).await
    }

    async fn over(volume: Volume) -> Self {
        let meta = volume.visitor().await;
        // Ids are there already.
        meta.dir("d").await;
        meta.new_slice().await.expect("slice id");
        Self { meta, url: volume.url.clone(), _volume: volume }
    }

    pub fn fail(&self, on: &str, what: &str, times: u32) {
        TikvServer::shared().fail(&self.url, on, what, times);
    }

    pub async fn inodes(&self) -> i64 {
        self.meta.flush().await.expect("flush");
        self.meta.engine().counter(Counter::TotalInodes).await.expect("counter")
    }

    /// A bit of everything; every step must succeed, and leave what it should.
    pub async fn work(&self, round: usize, mut fail: impl FnMut()) {
        let (dir, file) = (format!("d/sub{round}"), format!("d/f{round}"));
        let links = self.meta.attr("d").await.nlink;
        fail();
        self.meta.dir(&dir).await;
        assert_eq!(self.meta.attr("d").await.nlink, links + 1);
        fail();
        let ino = self.meta.file(&file).await;
        let id = self.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 100, off: 0, len: 100 };
        fail();
        self.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
        let stored = self.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![slice])]);
        let moved = format!("{dir}/g");
        fail();
        self.meta.mv(&file, &moved).await.expect("rename");
        assert_eq!(self.meta.ino(&moved).await, ino);
        fail();
        self.meta.rm(&moved).await.expect("unlink");
        fail();
        self.meta.rm_dir(&dir).await.expect("rmdir");
        assert_eq!(self.meta.attr("d").await.nlink, links);
        assert!(self.meta.names("d").await.is_empty());
    }
}

async fn passes(on: &str) {
    for wire in [Wire::new().await, Wire::in_one_region().await] {
        passes_on(&wire, on).await;
    }
}

async fn passes_on(wire: &Wire, on: &str) {
    let before = wire.inodes().await;
    for (round, what) in PASSING.iter().enumerate() {
        wire.work(round, || wire.fail(on, what, 1)).await;
    }
    assert_eq!(wire.inodes().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_once_with_a_read_is_not_noticed() {
    passes("KvBatchGet").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_once_with_a_prewrite_is_not_noticed() {
    passes("KvPrewrite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_once_with_a_commit_is_not_noticed() {
    passes("KvCommit").await;
}

/// The commit takes effect and nobody hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answers_are_all_lost_is_done_once() {
    let wire = Wire::new().await;
    let before = wire.inodes().await;
    wire.fail("KvCommit", "lose", ALWAYS);
    wire.meta.dir("d/sub").await;
    assert_eq!(wire.meta.attr("d").await.nlink, 3);
    assert_eq!(wire.inodes().await, before + 1);
}

/// The commit never arrives, and nobody knows: it is taken back, and only then repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrives_is_repeated_once() {
    let wire = Wire::new().await;
    let before = wire.inodes().await;
    wire.fail("KvCommit", "refuse", ALWAYS);
    wire.meta.dir("d/sub").await;
    assert_eq!(wire.meta.attr("d").await.nlink, 3);
    assert_eq!(wire.inodes().await, before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_whose_commit_is_lost_counts_once() {
    for what in ["lose", "refuse"] {
        let wire = Wire::new().await;
        let engine = wire.meta.engine();
        let before = engine.counter(Counter::UsedSpace).await.expect("counter");
        wire.fail("KvCommit", what, ALWAYS);
        let after = engine.add_counter(Counter::UsedSpace, 5).await.expect("settled");
        assert_eq!(after, before + 5, "{what}");
        assert_eq!(engine.counter(Counter::UsedSpace).await.expect("counter"), after, "{what}");
    }
}

/// What is written whatever is there has nothing that would tell, unless someone has looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regression_a_session_is_stored_by_a_server_that_is_busy_for_a_moment() {
    for wire in [Wire::new().await, Wire::in_one_region().await] {
        let (engine, sid) = (wire.meta.engine(), Sid(77));
        for (on, what) in [("KvPrewrite", "busy"), ("KvPrewrite", "lose"), ("KvCommit", "busy")] {
            wire.fail(on, what, 1);
            engine.put_session(sid, 100, b"{}").await.expect("stored");
            assert_eq!(
                engine.session(sid).await.expect("read").map(|found| found.expire),
                Some(100)
            );
            wire.fail(on, what, 1);
            engine.remove_session(sid).await.expect("removed");
            assert!(engine.session(sid).await.expect("read").is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_commit_is_lost_is_appended_once() {
    for what in ["lose", "refuse"] {
        let wire = Wire::new().await;
        let ino = wire.meta.file("f").await;
        let id = wire.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 100, off: 0, len: 100 };
        wire.fail("KvCommit", what, ALWAYS);
        wire.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
        let stored = wire.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![slice])], "{what}");
    }
}

/// Regions split and change their leaders while a client works that knows them as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_may_move_under_a_working_client() {
    let wire = Wire::new().await;
    let server = TikvServer::shared();
    for round in 0_u8..6 {
        let keys: [&[u8]; 3] = [b"A\x01", b"A\x02", b"A\x05"];
        for key in keys {
            server.move_leader(&wire.url, key);
        }
        server.split(&wire.url, &[b'A', 1, 0, 0, 0, 0, 0, 0, 0, b'D', b'a' + round]);
        wire.work(usize::from(round), || ()).await;
    }
}

/// What a client that died has locked is in the way for a moment only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_a_dead_client_expire() {
    let wire = Wire::new().await;
    let dir = wire.meta.ino("d").await;
    let dead = {
        let meta = wire.meta.clone();
        // Its commits go nowhere, and then it is gone.
        wire.fail("KvCommit", "hang", 1);
        tokio::spawn(async move {
            meta.mkdir(&Caller::root(), dir, &name("locked"), 0o755, 0).await.map(drop)
        })
    };
    let commits = || TikvServer::shared().calls().get("KvCommit").copied().unwrap_or(0);
    let before = commits();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while commits() == before {
        assert!(std::time::Instant::now() < deadline, "it never commits");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    dead.abort();
    let made = wire.meta.mkdir(&Caller::root(), dir, &name("locked"), 0o755, 0).await;
    assert!(made.is_ok(), "{made:?}");
    assert_eq!(wire.meta.attr("d").await.nlink, 3);
    assert_eq!(wire.meta.names("d").await, ["locked"]);
}

/// It died after it had locked one key and before it reached the one that decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_a_client_that_died_half_way_go_away() {
    let wire = Wire::new().await;
    // Inode 2 is d. The name in it is the primary key, the name in e lies in another region.
    assert_eq!(wire.meta.dir("e").await.0, 3);
    let ino = wire.meta.file("d/f").await;
    let key = [b"A".as_slice(), &2_u64.to_le_bytes()].concat();
    TikvServer::shared().fail_key(&wire.url, &key, "KvPrewrite", "refuse", ALWAYS);
    let seen = || TikvServer::shared().calls().get("KvPrewrite").copied().unwrap_or(0);
    let before = seen();
    let dead = {
        let meta = wire.meta.clone();
        tokio::spawn(async move { meta.mv("d/f", "e/f").await })
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while seen() < before + 4 {
        assert!(std::time::Instant::now() < deadline, "it never writes");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    dead.abort();
    assert!(dead.await.is_err_and(|error| error.is_cancelled()));
    assert!(wire.meta.names("e").await.is_empty());
    assert_eq!(wire.meta.ino("d/f").await, ino);
}
