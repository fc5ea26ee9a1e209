//! Locked, closed and full databases.

use std::time::{Duration, Instant};

use super::*;
use crate::error::Error;
use crate::meta::record::Counter;

#[tokio::test]
async fn a_lock_held_for_a_while_is_waited_for() {
    let volume = Volume::with("?_timeout=100").await;
    let lock = volume.beside();
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
async fn a_lock_held_for_too_long_is_an_error_that_says_so() {
    let volume = Volume::with("?_timeout=20").await;
    let lock = volume.beside();
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
async fn reads_go_on_while_another_process_writes() {
    let volume = Volume::with("?_timeout=20").await;
    let lock = volume.beside();
    lock.execute_batch("BEGIN IMMEDIATE; UPDATE jfs_counter SET value = 77").unwrap();
    assert_eq!(volume.engine.counter(Counter::NextInode).await.unwrap(), 2);
    lock.execute_batch("COMMIT").unwrap();
    assert_eq!(volume.engine.counter(Counter::NextInode).await.unwrap(), 77);
}

#[tokio::test]
async fn without_a_write_ahead_log_it_works_as_well() {
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
async fn a_full_database_fails_the_commit_and_nothing_else() {
    let volume = Volume::new().await;
    let pages: i64 = volume.value("PRAGMA page_count");
    volume
        .engine
        .link
        .change(move |db| db.run_once(&format!("PRAGMA max_page_count = {}", pages + 2)))
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
async fn a_closed_engine_answers_with_an_error() {
    let volume = Volume::new().await;
    volume.engine.close().await.unwrap();
    let error = volume.engine.load_setting().await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.is_err());
    // The last connection leaves one file behind.
    assert!(!volume.path.with_extension("db-wal").exists());
}

#[tokio::test]
async fn a_thread_that_panics_leaves_nobody_waiting() {
    let volume = Volume::new().await;
    let lost =
        volume.engine.link.write(|_| -> super::super::fault::Outcome<()> { panic!("on purpose") });
    assert!(matches!(lost.await, Err(CommitError::Unknown(_))));
    let later = volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await;
    assert!(later.is_err());
    assert!(volume.engine.load_setting().await.is_ok(), "reads go on");
}

#[tokio::test]
async fn a_write_nobody_waits_for_is_left_out_if_it_has_not_begun() {
    let volume = Volume::new().await;
    let lock = volume.beside();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The first occupies the writer; the second is given up while it waits behind it.
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
