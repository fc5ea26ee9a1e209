//! Commits in one phase: the request that writes the keys is the commit, so losing its answer is
//! losing the commit's.

use std::time::Duration;

use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Counter, Slice};
use jfs::meta::{Caller, Timestamp};

use super::faults::{ALWAYS, Wire};
use crate::support::tikv::{TikvFault, TikvServer};
use crate::support::tree::{Tree, name};

/// The answers that get lost: one, so that the library repeats the request, or all.
const LOST: [(&str, u32); 4] = [("lose", 1), ("lose", ALWAYS), ("refuse", 1), ("refuse", ALWAYS)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_whose_answers_are_lost_is_made_once() {
    for (what, times) in LOST {
        let wire = Wire::in_one_region().await;
        let before = wire.inodes().await;
        wire.fail("KvPrewrite", what, times);
        wire.meta.dir("d/sub").await;
        assert_eq!(wire.meta.attr("d").await.nlink, 3, "{what} {times}");
        assert_eq!(wire.inodes().await, before + 1, "{what} {times}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_whose_answers_are_lost_is_appended_once() {
    for (what, times) in LOST {
        let wire = Wire::in_one_region().await;
        let ino = wire.meta.file("f").await;
        let id = wire.meta.new_slice().await.expect("slice id");
        let slice = Slice { pos: 0, id, size: 100, off: 0, len: 100 };
        wire.fail("KvPrewrite", what, times);
        wire.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
        let stored = wire.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![slice])], "{what} {times}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_whose_answers_are_lost_counts_once() {
    for (what, times) in LOST {
        let wire = Wire::in_one_region().await;
        let engine = wire.meta.engine();
        let before = engine.counter(Counter::UsedSpace).await.expect("counter");
        wire.fail("KvPrewrite", what, times);
        let after = engine.add_counter(Counter::UsedSpace, 5).await.expect("settled");
        assert_eq!(after, before + 5, "{what} {times}");
        assert_eq!(engine.counter(Counter::UsedSpace).await.expect("counter"), after, "{what}");
    }
}

/// The first answer is lost, and another client goes on from what it has committed before the
/// library asks again: to the library that looks like any conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_behind_which_another_client_went_on_is_no_conflict() {
    let wire = Wire::in_one_region().await;
    let (dir, root) = (wire.meta.ino("d").await, Caller::root());
    let server = TikvServer::shared();
    // The answer never comes, and the library asks again after five seconds.
    wire.fail("KvPrewrite", "lose-hang", 1);
    let made = {
        let meta = wire.meta.clone();
        tokio::spawn(async move { meta.mkdir(&root, dir, &name("sub"), 0o755, 0).await.map(drop) })
    };
    let key = [b"A".as_slice(), &dir.0.to_le_bytes(), b"Dsub"].concat();
    let deadline = std::time::Instant::now() + Duration::from_secs(4);
    while !server.dump(&wire.url).contains_key(&key) {
        assert!(std::time::Instant::now() < deadline, "it is never made");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = jfs::meta::Meta::connect(&wire.url, jfs::meta::Options::default()).await;
    let other = other.expect("another client");
    other.dir("d/beside").await;
    made.await.expect("no panic").expect("it was made, once");
    assert_eq!(wire.meta.names("d").await, ["beside", "sub"]);
    assert_eq!(wire.meta.attr("d").await.nlink, 4);
    other.close().await.expect("close");
}

/// What was given up and taken back arrives after all: it must not take effect then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_after_it_was_given_up_is_refused() {
    let wire = Wire::in_one_region().await;
    let before = wire.inodes().await;
    let held = Duration::from_secs(18);
    let fault = TikvFault { on: "KvPrewrite", what: "late", times: 4, delay: held };
    TikvServer::shared().inject(&wire.url, b"A", &fault);
    wire.meta.dir("d/sub").await;
    let now = wire.meta.attr("d").await;
    // Long enough for all of them to arrive.
    tokio::time::sleep(held).await;
    assert_eq!(wire.meta.attr("d").await, now);
    assert_eq!(now.nlink, 3);
    assert_eq!(wire.meta.names("d").await, ["sub"]);
    assert_eq!(wire.inodes().await, before + 1);
}

/// An old server never commits in one phase, and a new leader not at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_declines_one_phase_gets_two() {
    for what in ["decline", "new-leader"] {
        let wire = Wire::in_one_region().await;
        wire.fail("KvPrewrite", what, 2);
        wire.work(0, || ()).await;
    }
}
