//! Group commits, and several writers on one file.

use futures::future::join_all;

use super::*;
use crate::meta::record::{Counter, SliceSize};

fn create(ino: u64) -> Vec<Change> {
    vec![
        Change::PutAttr(Ino(ino), file_attr()),
        Change::PutEntry(Ino::ROOT, name(&format!("f{ino}")), file(ino)),
        Change::AddUsage { space: 4096, inodes: 1 },
    ]
}

#[tokio::test]
async fn queued_commits_share_a_transaction() {
    let volume = Volume::new().await;
    let (before, _) = volume.engine.connections.commits().counts();

    // Once the writer gets the lock, it finds the others queued.
    let lock = volume.other_connection();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let creates: Vec<Vec<Change>> = (100..164).map(create).collect();
    let commits = join_all(creates.iter().map(|changes| volume.apply(changes)));
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        lock.execute_batch("COMMIT").unwrap();
    };
    let (outcomes, ()) = tokio::join!(commits, release);

    assert!(outcomes.iter().all(Result::is_ok));
    let (after, _) = volume.engine.connections.commits().counts();
    assert!(after - before <= 3, "{} transactions", after - before);
    assert_eq!(volume.value::<i64>("SELECT count(*) FROM jfs_edge"), 64);
    assert_eq!(
        volume.value::<i64>("SELECT count(*) FROM jfs_node WHERE inode BETWEEN 100 AND 163"),
        64
    );
    assert_eq!(volume.engine.counter(Counter::UsedSpace).await.unwrap(), 64 * 4096);
    assert_eq!(volume.engine.counter(Counter::TotalInodes).await.unwrap(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_commits_take_fewer_transactions() {
    let volume = Arc::new(Volume::new().await);
    let (before, _) = volume.engine.connections.commits().counts();
    let tasks = (0..64u64).map(|task| {
        let volume = Arc::clone(&volume);
        tokio::spawn(async move {
            for round in 0..10 {
                volume.apply(&create(1000 + task * 100 + round)).await.unwrap();
            }
        })
    });
    for done in join_all(tasks).await {
        done.unwrap();
    }
    let (after, writes) = volume.engine.connections.commits().counts();
    assert!(writes >= 640);
    assert!(after - before < 320, "{} transactions for 640 commits", after - before);
    assert_eq!(volume.value::<i64>("SELECT count(*) FROM jfs_edge"), 640);
}

#[tokio::test]
async fn a_failed_write_of_a_group_is_rolled_back_alone() {
    let volume = Volume::new().await;
    let taken = SliceSize { id: SliceId(1), size: 10 };
    volume.apply(&[Change::NewSlice(taken)]).await.unwrap();

    let lock = volume.other_connection();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut failing = create(200);
    failing.push(Change::NewSlice(taken));
    let mut conflicting = volume.engine.begin();
    conflicting.read(&[Key::Entry(Ino::ROOT, name("f100"))]).await.unwrap();
    let (good, better, late) = (create(100), create(101), create(300));
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        lock.execute_batch("COMMIT").unwrap();
    };
    let (first, failed, conflict, last, ()) = tokio::join!(
        volume.apply(&good),
        volume.apply(&failing),
        conflicting.commit(&late),
        volume.apply(&better),
        release,
    );

    assert!(first.is_ok() && last.is_ok());
    assert!(matches!(failed, Err(CommitError::Failed(_))), "{failed:?}");
    assert!(matches!(conflict, Err(CommitError::Conflict)), "{conflict:?}");
    let names: String =
        volume.value("SELECT group_concat(CAST(name AS TEXT), ',' ORDER BY name) FROM jfs_edge");
    assert_eq!(names, "f100,f101");
    assert_eq!(volume.read(Key::Attr(Ino(200))).await, Record::Attr(None));
    assert_eq!(volume.engine.counter(Counter::TotalInodes).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_engines_on_one_file_lose_no_update() {
    let volume = Arc::new(Volume::new().await);
    let other = Arc::new(open(&volume.path, "").await.unwrap());
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();

    let engines = [Arc::clone(&volume.engine), Arc::clone(&other)];
    let tasks = (0..8).map(|task| {
        let engine = Arc::clone(&engines[task % 2]);
        tokio::spawn(async move {
            for _ in 0..25 {
                lengthen(&engine, Ino(5)).await;
                engine.add_counter(Counter::NextInode, 1024).await.unwrap();
            }
        })
    });
    for done in join_all(tasks).await {
        done.unwrap();
    }

    let Record::Attr(Some(attr)) = volume.read(Key::Attr(Ino(5))).await else { panic!() };
    assert_eq!(attr.length, 200);
    assert_eq!(other.counter(Counter::NextInode).await.unwrap(), 2 + 200 * 1024);
}

/// Adds to the length of a file, again after each conflict.
async fn lengthen(engine: &SqliteEngine, ino: Ino) {
    loop {
        let mut tx = engine.begin();
        let Record::Attr(Some(mut attr)) = tx.read(&[Key::Attr(ino)]).await.unwrap().remove(0)
        else {
            panic!("the node is there");
        };
        attr.length += 1;
        match tx.commit(&[Change::PutAttr(ino, attr)]).await {
            Ok(_) => return,
            Err(CommitError::Conflict) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_commit_is_seen_by_every_later_read() {
    let volume = Volume::new().await;
    for ino in 100..200 {
        volume.apply(&create(ino)).await.unwrap();
        let keys = [Key::Attr(Ino(ino)), Key::Entry(Ino::ROOT, name(&format!("f{ino}")))];
        let records = volume.engine.read(&keys).await.unwrap();
        assert_eq!(records[0], Record::Attr(Some(file_attr())));
        assert_eq!(records[1], Record::Entry(Some(file(ino))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_read_of_several_keys_sees_one_snapshot() {
    let volume = Arc::new(Volume::new().await);
    let pair = |length| {
        let mut attr = file_attr();
        attr.length = length;
        [Change::PutAttr(Ino(5), attr.clone()), Change::PutAttr(Ino(6), attr)]
    };
    volume.apply(&pair(0)).await.unwrap();
    let writer = {
        let volume = Arc::clone(&volume);
        tokio::spawn(async move {
            for length in 1..200 {
                volume.apply(&pair(length)).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let records = volume.engine.read(&[Key::Attr(Ino(5)), Key::Attr(Ino(6))]).await.unwrap();
        assert_eq!(records[0], records[1]);
    }
    writer.await.unwrap();
}
