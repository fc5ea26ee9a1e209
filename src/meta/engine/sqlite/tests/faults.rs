//! Locked, closed and full databases.

use std::time::{Duration, Instant};

use super::*;
use crate::error::Error;
use crate::meta::record::Counter;

#[tokio::test]
async fn a_commit_waits_for_a_lock_held_for_a_short_time() {
    let volume = Volume::with("?_timeout=100").await;
    let lock = volume.other_connection();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async {
        // Longer than one timeout.
        tokio::time::sleep(Duration::from_millis(250)).await;
        lock.execute_batch("COMMIT").unwrap();
    };
    let (added, ()) = tokio::join!(volume.engine.add_counter(Counter::NextChunk, 1), release);
    assert_eq!(added.unwrap(), 2);
}

#[tokio::test]
async fn a_lock_held_for_too_long_is_reported() {
    let volume = Volume::with("?_timeout=20").await;
    let lock = volume.other_connection();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    let outcome = volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await;
    let Err(CommitError::Failed(error @ Error::Engine { .. })) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(start.elapsed() > Duration::from_millis(100));
    let text = error.to_string();
    assert!(text.contains("meta.db") && text.contains("locked"), "{text}");

    lock.execute_batch("COMMIT").unwrap();
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
}

#[tokio::test]
async fn reads_continue_while_another_process_writes() {
    let volume = Volume::with("?_timeout=20").await;
    let lock = volume.other_connection();
    lock.execute_batch("BEGIN IMMEDIATE; UPDATE jfs_counter SET value = 77").unwrap();
    assert_eq!(volume.engine.counter(Counter::NextInode).await.unwrap(), 2);
    lock.execute_batch("COMMIT").unwrap();
    assert_eq!(volume.engine.counter(Counter::NextInode).await.unwrap(), 77);
}

#[tokio::test]
async fn reads_and_writes_work_without_a_write_ahead_log() {
    let volume = Arc::new(Volume::with("?_journal=DELETE").await);
    assert_eq!(volume.value::<String>("PRAGMA journal_mode"), "delete");
    let tasks: Vec<_> = (100..120)
        .map(|ino| {
            let volume = Arc::clone(&volume);
            tokio::spawn(async move {
                volume.apply(&[Change::PutAttr(Ino(ino), file_attr())]).await.unwrap();
                volume.read(Key::Attr(Ino(ino))).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Record::Attr(Some(file_attr())));
    }
}

#[tokio::test]
async fn a_full_database_fails_only_the_commit() {
    let volume = Volume::new().await;
    let pages: i64 = volume.value("PRAGMA page_count");
    volume
        .engine
        .connections
        .write(move |db| db.run_once(&format!("PRAGMA max_page_count = {}", pages + 2)))
        .await
        .unwrap();
    let large = Bytes::from(vec![7; 1 << 20]);
    let outcome = volume.apply(&[Change::PutXattr(Ino(5), name("user.a"), large)]).await;
    let Err(CommitError::Failed(error)) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(volume.read(Key::Xattrs(Ino(5))).await, Record::Xattrs(vec![]));
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
}

#[tokio::test]
async fn calls_of_a_closed_engine_fail() {
    let volume = Volume::new().await;
    volume.engine.close().await.unwrap();
    let error = volume.engine.load_setting().await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.is_err());
    // Closing the last connection removes the journal files.
    assert!(!volume.path.with_extension("db-wal").exists());
}

#[tokio::test]
async fn callers_get_an_error_when_a_thread_panics() {
    let volume = Volume::new().await;
    let lost = volume
        .engine
        .connections
        .commit(|_| -> super::super::errors::DbResult<()> { panic!("on purpose") });
    assert!(matches!(lost.await, Err(CommitError::Unknown(_))));
    let later = volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await;
    assert!(later.is_err());
    assert!(volume.engine.load_setting().await.is_ok(), "reads go on");
}

#[tokio::test]
async fn a_queued_write_is_skipped_when_its_caller_is_gone() {
    let volume = Volume::new().await;
    let lock = volume.other_connection();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The first write occupies the writer; the second is cancelled while it is queued.
    let first = volume.engine.add_counter(Counter::NextChunk, 1);
    let second = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let add = volume.engine.add_counter(Counter::NextSession, 1);
        assert!(tokio::time::timeout(Duration::from_millis(20), add).await.is_err());
        lock.execute_batch("COMMIT").unwrap();
    };
    let (added, ()) = tokio::join!(first, second);
    assert_eq!(added.unwrap(), 2);
    assert_eq!(volume.engine.add_counter(Counter::NextSession, 5).await.unwrap(), 5);
}
