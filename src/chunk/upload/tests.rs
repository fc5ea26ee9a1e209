use std::sync::atomic::Ordering;

use super::*;
use crate::chunk::testing::{
    BLOCK, LAYOUT, Probe, body, cache_in, content, parts, slice, until, within, write,
};
use crate::chunk::{Compression, Options, Parts};
use crate::object::{ObjectStore, Wanted};

#[tokio::test]
async fn a_slice_reads_back_and_is_removed() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let probe = Probe::new();
        let store = Store::open(Parts { compression, ..parts(&probe) });
        let one = slice(5, 3 * BLOCK + 100);
        write(&store, one).finish().await.unwrap();
        assert!(store.read(one, 0..one.size).await.unwrap().concat() == content(one));
        store.remove(one).await.unwrap();
        assert!(probe.is_empty().await);
        let error = store.read(one, 0..1).await.unwrap_err();
        assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_body_is_not_copied_on_its_way() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    let block = LAYOUT.block(slice(5, BLOCK), 0);
    let bytes = body(block);
    let mut upload = store.upload(block.slice, 0);
    upload.put(0, bytes.clone(), None);
    upload.finish().await.unwrap();
    let stored = probe.mem.get(&LAYOUT.key(block), Wanted::all()).await.unwrap();
    assert_eq!(stored.as_ptr(), bytes.as_ptr());
}

#[tokio::test]
async fn uploads_at_the_same_time_are_bounded() {
    let probe = Probe::new();
    let options = Options { max_uploads: 3, ..Options::default() };
    let store = Store::open(Parts { options, ..parts(&probe) });
    probe.hold();
    let one = slice(5, 20 * BLOCK);
    let mut upload = write(&store, one);
    until("uploads", || probe.puts() == 3).await;
    probe.release();
    within("the upload", upload.finish()).await.unwrap();
    assert!(probe.has(one).await);
    assert_eq!(probe.most_puts_at_once.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn memory_is_given_back_once_a_block_is_stored() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    let block = LAYOUT.block(slice(5, BLOCK), 0);
    probe.hold();
    let mut upload = store.upload(block.slice, 0);
    upload.put(0, body(block), Some(store.budget().reserve(BLOCK as usize).await));
    until("the upload", || probe.puts() == 1).await;
    assert_eq!(store.budget().used(), BLOCK as usize);
    probe.release();
    upload.finish().await.unwrap();
    assert_eq!(store.budget().used(), 0);
}

#[tokio::test]
async fn an_aborted_slice_leaves_nothing() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    let mut upload = write(&store, slice(5, 3 * BLOCK));
    upload.finish().await.unwrap();
    upload.abort().await.unwrap();
    assert!(probe.is_empty().await);
}

#[tokio::test]
async fn a_slice_that_is_dropped_is_aborted() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    let upload = write(&store, slice(5, 3 * BLOCK));
    until("uploads", || probe.puts() == 3).await;
    drop(upload);
    within("closing", store.close()).await;
    assert!(probe.is_empty().await);
}

#[tokio::test]
async fn a_finished_slice_stays_when_its_upload_is_dropped() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    let one = slice(5, 3 * BLOCK);
    write(&store, one).finish().await.unwrap();
    store.close().await;
    assert!(probe.has(one).await);
}

#[tokio::test]
async fn a_failed_block_fails_the_slice() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    probe.fail(true);
    let mut upload = write(&store, slice(5, 2 * BLOCK));
    let error = upload.finish().await.unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error}");
    probe.fail(false);
    upload.abort().await.unwrap();
    assert!(probe.is_empty().await);
}

#[tokio::test]
async fn one_block_that_cannot_be_deleted_does_not_save_the_others() {
    let probe = Probe::new();
    let store = Store::open(parts(&probe));
    let one = slice(5, 3 * BLOCK);
    probe.fill(one).await;
    probe.fail_once();
    assert!(store.remove(one).await.is_err());
    assert_eq!(probe.mem.list("", "", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn short_blocks_are_cached_as_they_are_written() {
    for (cache_large_write, cached) in [(false, [false, true]), (true, [true, true])] {
        let folder = tempfile::tempdir().unwrap();
        let (_cache, volume) = cache_in(folder.path()).await;
        let options = Options { cache_large_write, ..Options::default() };
        let cache = Some(volume.clone());
        let store = Store::open(Parts { cache, options, ..parts(&Probe::new()) });
        let one = slice(5, BLOCK + 100);
        write(&store, one).finish().await.unwrap();
        let found: Vec<_> = LAYOUT.blocks(one).map(|block| volume.contains(block)).collect();
        assert_eq!(found, cached);
    }
}

#[tokio::test]
async fn what_is_removed_is_not_cached_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (_cache, volume) = cache_in(folder.path()).await;
    let cache = Some(volume.clone());
    let store = Store::open(Parts { cache, ..parts(&Probe::new()) });
    let one = slice(5, 100);
    write(&store, one).finish().await.unwrap();
    assert!(volume.contains(LAYOUT.block(one, 0)));
    store.remove(one).await.unwrap();
    assert!(!volume.contains(LAYOUT.block(one, 0)));
}
