//! Failures: which errors a file reports, what it keeps, and what it leaves behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jfs::Error;
use jfs::chunk::Budget;
use jfs::meta::engine::kv::memory::Fault;
use jfs::meta::engine::kv::{KvEngine, MemoryStore};
use jfs::meta::record::{CHUNK_SIZE, Setting};
use jfs::meta::{Meta, Options};
use nix::errno::Errno;

use crate::cut_store::CutStore;
use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{BLOCK, Client, noise, read, until, within};
use crate::support::data::{fragile, records, remove};
use crate::support::volume::{Volume, setting};

async fn client(vol: &Volume) -> (Client, Arc<FaultyBucket>) {
    let bucket = Arc::new(FaultyBucket::default());
    (Client::new(vol, &bucket).await, bucket)
}

#[tokio::test]
async fn a_failed_upload_is_reported_until_every_handle_is_closed() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let (file, second) = {
        let file = here.create("f").await;
        let second = here.open(file.ino()).await;
        (file, second)
    };
    let ino = file.ino();
    here.write(ino, 0, b"kept and").await;
    here.flush(ino).await;
    bucket.fail(true);
    here.write(ino, 0, b"lost").await;
    let error = within("flush", here.content.flush(ino)).await.unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error}");
    bucket.fail(false);
    drop(file);
    for _ in 0..2 {
        assert_eq!(here.content.flush(ino).await.unwrap_err().errno(), Errno::EIO);
        assert_eq!(here.content.write(ino, 0, b"x").await.unwrap_err().errno(), Errno::EIO);
    }
    let lost = within("read", second.read(2, 10)).await.unwrap_err();
    assert_eq!(lost.errno(), Errno::EIO, "not what was there before the write");
    assert_eq!(read(&second, 4, 4).await, b" and", "what was stored can be read");
    drop(second);
    let file = here.open(ino).await;
    here.write(ino, 8, b" new").await;
    here.flush(ino).await;
    assert_eq!(read(&file, 0, 20).await, b"kept and new");
}

#[tokio::test]
async fn a_panic_in_the_store_is_an_error_for_waiters() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    let ino = file.ino();
    here.write(ino, 0, &noise(2 * BLOCK as usize, 1)).await;
    here.flush(ino).await;
    bucket.panics.store(true, Ordering::Relaxed);
    here.write(ino, 0, b"lost").await;
    let error = within("flush", here.content.flush(ino)).await.unwrap_err();
    assert_eq!(error.errno(), Errno::EIO, "{error}");
    assert!(error.to_string().contains("a defect of the store"), "{error}");
    let error = within("read", file.read(BLOCK.into(), 10)).await.unwrap_err();
    assert_eq!(error.errno(), Errno::EIO, "{error}");
}

#[tokio::test]
async fn a_later_write_never_shows_without_a_failed_earlier_one() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    let ino = file.ino();
    // The first of three slices fails; the others are stored already, one of them in its own chunk.
    bucket.hold("_50");
    here.write(ino, 0, &[1; 50]).await;
    here.write(ino, 1000, &[2; 40]).await;
    here.write(ino, CHUNK_SIZE, &[3; 30]).await;
    let flush = tokio::spawn({
        let content = here.content.clone();
        async move { content.flush(ino).await }
    });
    until("the others", async || bucket.keys().await.len() == 2).await;
    bucket.fail(true);
    bucket.release();
    within("flush", flush).await.unwrap().unwrap_err();
    assert_eq!(here.stored_length(ino).await, 0);
    assert_eq!(here.content.length(ino), Some(0));
    for index in [0, 1] {
        assert_eq!(records(&here.meta, ino, index).await, []);
    }
    until("removal of the objects", async || bucket.keys().await.is_empty()).await;
}

#[tokio::test]
async fn an_error_without_a_handle_is_reported_once() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let ino = here.create("f").await.ino();
    bucket.hold("_4");
    here.write(ino, 0, b"lost").await;
    bucket.fail(true);
    let content = here.content.clone();
    let flush = tokio::spawn(async move { content.flush(ino).await });
    bucket.release();
    within("flush", flush).await.unwrap().unwrap_err();
    bucket.fail(false);
    here.write(ino, 0, b"next").await;
    here.flush(ino).await;
    assert_eq!(here.stored_length(ino).await, 4);
}

#[tokio::test]
async fn data_of_a_file_removed_meanwhile_is_deleted() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let there = vol.client().await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, &noise(500, 1)).await;
    remove(&there, "f").await;
    let gone = within("flush", here.content.flush(file.ino())).await.unwrap_err();
    assert!(matches!(gone, Error::NotFound), "{gone}");
    until("removal of the objects", async || bucket.keys().await.is_empty()).await;
}

#[tokio::test]
async fn a_file_without_a_name_is_writable_until_it_is_closed() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    remove(&here.meta, "f").await;
    here.write(file.ino(), 0, b"still here").await;
    here.flush(file.ino()).await;
    assert_eq!(read(&file, 0, 100).await, b"still here");
}

#[tokio::test]
async fn a_full_volume_is_reported_and_keeps_no_objects() {
    let vol = Volume::memory_with(Setting { capacity: 1 << 20, ..setting() }).await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 2 << 20, b"too far").await;
    let full = within("flush", here.content.flush(file.ino())).await.unwrap_err();
    assert_eq!(full.errno(), Errno::ENOSPC);
    until("removal of the objects", async || bucket.keys().await.is_empty()).await;
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_made_once() {
    for fault in [Fault::LostApplied, Fault::LostUnapplied] {
        let (vol, store) = fragile().await;
        let (here, _) = client(&vol).await;
        let file = here.create("f").await;
        // So that the commit of the slice is the next one.
        here.meta.new_slice().await.unwrap();
        here.meta.flush().await.unwrap();
        here.write(file.ino(), 0, b"once").await;
        store.faults().push(fault);
        here.flush(file.ino()).await;
        assert_eq!(records(&here.meta, file.ino(), 0).await.len(), 1, "{fault:?}");
        assert_eq!(read(&file, 0, 10).await, b"once");
    }
}

/// It is unknown whether the slice became part of the file, so its objects must stay: it did.
#[tokio::test]
async fn a_commit_of_unknown_outcome_keeps_its_objects() {
    let vol = Volume::memory().await;
    let bucket = Arc::new(FaultyBucket::default());
    let line = CutStore::new(MemoryStore::named(vol.url.strip_prefix("memkv://").unwrap()));
    let meta = Meta::new(Arc::new(KvEngine::new(line.clone())), Options::default());
    meta.load().await.unwrap();
    let here = Client::sized(meta, bucket.clone(), BLOCK, Budget::new(1 << 20));
    let file = here.create("f").await;
    // So that the commit of the slice is the next one.
    here.meta.new_slice().await.unwrap();
    here.write(file.ino(), 0, b"perhaps").await;
    line.arm();
    let error = within("flush", here.content.flush(file.ino())).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    line.mend();
    let there = Client::new(&vol, &bucket).await;
    assert_eq!(read(&there.open(file.ino()).await, 0, 100).await, b"perhaps");
    let ino = file.ino();
    drop(file);
    assert_eq!(read(&here.open(ino).await, 0, 100).await, b"perhaps");
}

/// Found by the model: a full block is uploaded without anybody waiting for it. When that failed, a
/// read returned the data that had been there before, or ended too early.
#[tokio::test]
async fn regression_a_read_of_data_given_up_in_the_background_fails() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, &[1; 10]).await;
    here.flush(file.ino()).await;
    bucket.fail(true);
    here.write(file.ino(), 0, &[2; BLOCK as usize]).await;
    here.write(file.ino(), 1000, &[3; BLOCK as usize]).await;
    // One of the two is frozen and fails; nobody flushes the file.
    let _ = within("read", file.read(0, 1)).await.unwrap_err();
    until("failure", async || here.content.length(file.ino()) == Some(10)).await;
    bucket.fail(false);
    for off in [0, 5, 500, 1000] {
        let error = within("read", file.read(off, 8)).await.unwrap_err();
        assert_eq!(error.errno(), Errno::EIO, "at {off}");
        assert!(file.read_now(off, 8).is_none());
    }
    assert_eq!(read(&file, 5000, 8).await, b"", "past all that was written");
}

#[tokio::test]
async fn a_cancelled_write_leaves_its_first_bytes() {
    let vol = Volume::memory().await;
    let bucket = Arc::new(FaultyBucket::default());
    let budget = Budget::new(4 << 10);
    let here = Client::sized(vol.client().await, bucket.clone(), BLOCK, budget);
    let file = here.create("f").await;
    let bytes = noise(1000, 3);
    bucket.hold("");
    let write = here.content.write(file.ino(), 0, &bytes);
    let cut_short = tokio::time::timeout(std::time::Duration::from_millis(20), write).await;
    assert!(cut_short.is_err(), "there is no room for all of it");
    bucket.release();
    here.flush(file.ino()).await;
    let left = read(&file, 0, 2000).await;
    assert!(!left.is_empty() && left.len() < bytes.len());
    assert_eq!(left, bytes[..left.len()]);
}

#[tokio::test]
async fn a_cancelled_flush_continues() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    let bytes = noise(300, 2);
    bucket.hold("");
    here.write(file.ino(), 0, &bytes).await;
    let flush = here.content.flush(file.ino());
    let cut_short = tokio::time::timeout(std::time::Duration::from_millis(20), flush).await;
    assert!(cut_short.is_err());
    bucket.release();
    until("commit", async || here.stored_length(file.ino()).await == 300).await;
    assert_eq!(records(&here.meta, file.ino(), 0).await.len(), 1);
    assert_eq!(read(&file, 0, 1000).await, bytes);
}
