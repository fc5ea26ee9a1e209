//! One-phase commits: the request that writes the keys is the commit, so losing its response means
//! losing that of the commit.

use std::time::Duration;

use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Counter, Slice};
use jfs::meta::{Caller, Timestamp};

use super::faults::{ALWAYS, FaultyClient};
use crate::support::tikv::{TikvFault, TikvServer};
use crate::support::tree::{Tree, name};

/// Which responses are lost: one, so that the library repeats the request, or all.
const LOST: [(&str, u32); 4] = [("lose", 1), ("lose", ALWAYS), ("refuse", 1), ("refuse", ALWAYS)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_created_once_despite_lost_responses() {
    for (what, times) in LOST {
        let client = FaultyClient::in_one_region().await;
        let before = client.inodes().await;
        client.fail("KvPrewrite", what, times);
        client.meta.dir("d/sub").await;
        assert_eq!(client.meta.attr("d").await.nlink, 3, "{what} {times}");
        assert_eq!(client.inodes().await, before + 1, "{what} {times}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_is_appended_once_despite_lost_responses() {
    for (what, times) in LOST {
        let client = FaultyClient::in_one_region().await;
        let ino = client.meta.file("f").await;
        let id = client.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 100, off: 0, len: 100 };
        client.fail("KvPrewrite", what, times);
        client.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
        let stored = client.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![slice])], "{what} {times}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_counts_once_despite_lost_responses() {
    for (what, times) in LOST {
        let client = FaultyClient::in_one_region().await;
        let engine = client.meta.engine();
        let before = engine.counter(Counter::UsedSpace).await.expect("counter");
        client.fail("KvPrewrite", what, times);
        let after = engine.add_counter(Counter::UsedSpace, 5).await.expect("adds");
        assert_eq!(after, before + 5, "{what} {times}");
        assert_eq!(engine.counter(Counter::UsedSpace).await.expect("counter"), after, "{what}");
    }
}

/// The first response is lost, and another client builds on the commit before the library repeats
/// the request. To the library this looks like a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_response_after_which_another_client_commits_is_no_conflict() {
    let client = FaultyClient::in_one_region().await;
    let (dir, root) = (client.meta.ino("d").await, Caller::root());
    let server = TikvServer::shared();
    // The response never comes, and the library repeats the request after five seconds.
    client.fail("KvPrewrite", "lose-hang", 1);
    let made = {
        let meta = client.meta.clone();
        tokio::spawn(async move { meta.mkdir(&root, dir, &name("sub"), 0o755, 0).await.map(drop) })
    };
    let key = [b"A".as_slice(), &dir.0.to_le_bytes(), b"Dsub"].concat();
    let deadline = std::time::Instant::now() + Duration::from_secs(4);
    while !server.dump(&client.url).contains_key(&key) {
        assert!(std::time::Instant::now() < deadline, "it is never created");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = jfs::meta::Meta::connect(&client.url, jfs::meta::Options::default()).await;
    let other = other.expect("another client");
    other.dir("d/beside").await;
    made.await.expect("no panic").expect("it was created once");
    assert_eq!(client.meta.names("d").await, ["beside", "sub"]);
    assert_eq!(client.meta.attr("d").await.nlink, 4);
    other.close().await.expect("close");
}

/// A commit that was given up and rolled back arrives after all. It must not take effect then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_after_its_rollback_has_no_effect() {
    let client = FaultyClient::in_one_region().await;
    let before = client.inodes().await;
    let held = Duration::from_secs(18);
    let fault = TikvFault { on: "KvPrewrite", what: "late", times: 4, delay: held };
    TikvServer::shared().inject(&client.url, b"A", &fault);
    client.meta.dir("d/sub").await;
    let now = client.meta.attr("d").await;
    // Long enough for all requests to arrive.
    tokio::time::sleep(held).await;
    assert_eq!(client.meta.attr("d").await, now);
    assert_eq!(now.nlink, 3);
    assert_eq!(client.meta.names("d").await, ["sub"]);
    assert_eq!(client.inodes().await, before + 1);
}

/// An old server never commits in one phase, and a new leader does not at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_declines_one_phase_gets_two_phases() {
    for what in ["decline", "new-leader"] {
        let client = FaultyClient::in_one_region().await;
        client.fail("KvPrewrite", what, 2);
        client.work(0, || ()).await;
    }
}
