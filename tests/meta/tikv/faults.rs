//! After every fault of a server, an operation succeeds or fails cleanly; it is never half done.

use std::sync::Arc;

use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Counter, Slice};
use jfs::meta::{Caller, Meta, Sid, Timestamp};

use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting};

/// Faults that the library or this client overcomes with one or two retries.
const TRANSIENT: [&str; 8] =
    ["refuse", "lose", "delay", "not-leader", "no-leader", "stale-epoch", "busy", "new-leader"];
/// More than the library's attempts, so that it gives up the request.
pub const ALWAYS: u32 = 11;

/// A client that flushes nothing by itself, so that the next commit is that of the test.
pub struct FaultyClient {
    pub meta: Arc<Meta>,
    pub url: String,
    _volume: Volume,
}

impl FaultyClient {
    /// In several regions, where a commit takes two phases.
    pub async fn new() -> Self {
        Self::over(Volume::tikv_with(setting()).await).await
    }

    /// In one region, where a commit takes one phase.
    pub async fn in_one_region() -> Self {
        Self::over(Volume::tikv_in_one_region_with(setting()).await).await
    }

    async fn over(volume: Volume) -> Self {
        let meta = volume.visitor().await;
        // Allocates ids in advance.
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

    /// Runs several operations with a fault each, which must all succeed with the right result.
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

async fn survives_faults(on: &str) {
    for client in [FaultyClient::new().await, FaultyClient::in_one_region().await] {
        survives_faults_on(&client, on).await;
    }
}

async fn survives_faults_on(client: &FaultyClient, on: &str) {
    let before = client.inodes().await;
    for (round, what) in TRANSIENT.iter().enumerate() {
        client.work(round, || client.fail(on, what, 1)).await;
    }
    assert_eq!(client.inodes().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transient_fault_of_a_read_is_overcome() {
    survives_faults("KvBatchGet").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transient_fault_of_a_prewrite_is_overcome() {
    survives_faults("KvPrewrite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transient_fault_of_a_commit_is_overcome() {
    survives_faults("KvCommit").await;
}

/// The commit takes effect, but all its responses are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_responses_are_lost_is_applied_once() {
    let client = FaultyClient::new().await;
    let before = client.inodes().await;
    client.fail("KvCommit", "lose", ALWAYS);
    client.meta.dir("d/sub").await;
    assert_eq!(client.meta.attr("d").await.nlink, 3);
    assert_eq!(client.inodes().await, before + 1);
}

/// The commit never arrives, which the client cannot know: it is rolled back before it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrives_is_applied_once() {
    let client = FaultyClient::new().await;
    let before = client.inodes().await;
    client.fail("KvCommit", "refuse", ALWAYS);
    client.meta.dir("d/sub").await;
    assert_eq!(client.meta.attr("d").await.nlink, 3);
    assert_eq!(client.inodes().await, before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_whose_commit_is_lost_counts_once() {
    for what in ["lose", "refuse"] {
        let client = FaultyClient::new().await;
        let engine = client.meta.engine();
        let before = engine.counter(Counter::UsedSpace).await.expect("counter");
        client.fail("KvCommit", what, ALWAYS);
        let after = engine.add_counter(Counter::UsedSpace, 5).await.expect("adds");
        assert_eq!(after, before + 5, "{what}");
        assert_eq!(engine.counter(Counter::UsedSpace).await.expect("counter"), after, "{what}");
    }
}

/// The outcome of a write without guards can only be determined if the old value was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regression_a_session_is_stored_although_the_server_is_busy_at_first() {
    for client in [FaultyClient::new().await, FaultyClient::in_one_region().await] {
        let (engine, sid) = (client.meta.engine(), Sid(77));
        for (on, what) in [("KvPrewrite", "busy"), ("KvPrewrite", "lose"), ("KvCommit", "busy")] {
            client.fail(on, what, 1);
            engine.put_session(sid, 100, b"{}").await.expect("stored");
            assert_eq!(
                engine.session(sid).await.expect("read").map(|found| found.expire),
                Some(100)
            );
            client.fail(on, what, 1);
            engine.remove_session(sid).await.expect("removed");
            assert!(engine.session(sid).await.expect("read").is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_commit_is_lost_is_appended_once() {
    for what in ["lose", "refuse"] {
        let client = FaultyClient::new().await;
        let ino = client.meta.file("f").await;
        let id = client.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 100, off: 0, len: 100 };
        client.fail("KvCommit", what, ALWAYS);
        client.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
        let stored = client.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![slice])], "{what}");
    }
}

/// Regions split and change their leaders while a client uses outdated information about them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_may_move_while_a_client_works() {
    let client = FaultyClient::new().await;
    let server = TikvServer::shared();
    for round in 0_u8..6 {
        let keys: [&[u8]; 3] = [b"A\x01", b"A\x02", b"A\x05"];
        for key in keys {
            server.move_leader(&client.url, key);
        }
        server.split(&client.url, &[b'A', 1, 0, 0, 0, 0, 0, 0, 0, b'D', b'a' + round]);
        client.work(usize::from(round), || ()).await;
    }
}

/// The locks of a dead client block others only for a short time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_a_dead_client_expire() {
    let client = FaultyClient::new().await;
    let dir = client.meta.ino("d").await;
    let dead = {
        let meta = client.meta.clone();
        // Its commits never arrive, and then it is gone.
        client.fail("KvCommit", "hang", 1);
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
    let made = client.meta.mkdir(&Caller::root(), dir, &name("locked"), 0o755, 0).await;
    assert!(made.is_ok(), "{made:?}");
    assert_eq!(client.meta.attr("d").await.nlink, 3);
    assert_eq!(client.meta.names("d").await, ["locked"]);
}

/// The client died after it had locked a key and before it reached the primary key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_without_a_primary_key_are_removed() {
    let client = FaultyClient::new().await;
    // Inode 2 is d. The name in it is the primary key; the name in e is in another region.
    assert_eq!(client.meta.dir("e").await.0, 3);
    let ino = client.meta.file("d/f").await;
    let key = [b"A".as_slice(), &2_u64.to_le_bytes()].concat();
    TikvServer::shared().fail_key(&client.url, &key, "KvPrewrite", "refuse", ALWAYS);
    let seen = || TikvServer::shared().calls().get("KvPrewrite").copied().unwrap_or(0);
    let before = seen();
    let dead = {
        let meta = client.meta.clone();
        tokio::spawn(async move { meta.mv("d/f", "e/f").await })
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while seen() < before + 4 {
        assert!(std::time::Instant::now() < deadline, "it never writes");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    dead.abort();
    assert!(dead.await.is_err_and(|error| error.is_cancelled()));
    assert!(client.meta.names("e").await.is_empty());
    assert_eq!(client.meta.ino("d/f").await, ino);
}
