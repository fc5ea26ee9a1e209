use std::sync::atomic::Ordering;

use super::*;
use crate::chunk::testing::{
    BLOCK, LAYOUT, TestBucket, body, cache_in, config, content, slice, until, within, write,
};
use crate::chunk::{Compression, Options, StoreConfig};
use crate::object::{GetRequest, ObjectStore};

#[tokio::test]
async fn a_slice_reads_back_and_is_removed() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let bucket = TestBucket::new();
        let store = Store::open(StoreConfig { compression, ..config(&bucket) });
        let one = slice(5, 3 * BLOCK + 100);
        write(&store, one).finish().await.unwrap();
        assert!(store.read(one, 0..one.size).await.unwrap().concat() == content(one));
        store.remove(one).await.unwrap();
        assert!(bucket.is_empty().await);
        let error = store.read(one, 0..1).await.unwrap_err();
        assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_uncompressed_body_is_not_copied() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    let block = LAYOUT.block(slice(5, BLOCK), 0);
    let bytes = body(block);
    let mut upload = store.upload(block.slice, 0);
    upload.put(0, bytes.clone(), None);
    upload.finish().await.unwrap();
    let stored = bucket.mem.get(&LAYOUT.key(block), GetRequest::whole()).await.unwrap();
    assert_eq!(stored.as_ptr(), bytes.as_ptr());
}

#[tokio::test]
async fn concurrent_uploads_are_limited() {
    let bucket = TestBucket::new();
    let options = Options { max_uploads: 3, ..Options::default() };
    let store = Store::open(StoreConfig { options, ..config(&bucket) });
    bucket.hold();
    let one = slice(5, 20 * BLOCK);
    let mut upload = write(&store, one);
    until("uploads", || bucket.puts() == 3).await;
    bucket.release();
    within("the upload", upload.finish()).await.unwrap();
    assert!(bucket.has(one).await);
    assert_eq!(bucket.most_puts_at_once.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn memory_is_given_back_once_a_block_is_stored() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    let block = LAYOUT.block(slice(5, BLOCK), 0);
    bucket.hold();
    let mut upload = store.upload(block.slice, 0);
    upload.put(0, body(block), Some(store.budget().reserve(BLOCK as usize).await));
    until("the upload", || bucket.puts() == 1).await;
    assert_eq!(store.budget().used(), BLOCK as usize);
    bucket.release();
    upload.finish().await.unwrap();
    assert_eq!(store.budget().used(), 0);
}

#[tokio::test]
async fn an_aborted_slice_leaves_nothing() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    let mut upload = write(&store, slice(5, 3 * BLOCK));
    upload.finish().await.unwrap();
    upload.abort().await.unwrap();
    assert!(bucket.is_empty().await);
}

#[tokio::test]
async fn dropping_an_unfinished_upload_aborts_it() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    let upload = write(&store, slice(5, 3 * BLOCK));
    until("uploads", || bucket.puts() == 3).await;
    drop(upload);
    within("closing", store.close()).await;
    assert!(bucket.is_empty().await);
}

#[tokio::test]
async fn dropping_a_finished_upload_keeps_its_slice() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    let one = slice(5, 3 * BLOCK);
    write(&store, one).finish().await.unwrap();
    store.close().await;
    assert!(bucket.has(one).await);
}

#[tokio::test]
async fn a_failed_block_fails_the_slice() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    bucket.fail(true);
    let mut upload = write(&store, slice(5, 2 * BLOCK));
    let error = upload.finish().await.unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error}");
    bucket.fail(false);
    upload.abort().await.unwrap();
    assert!(bucket.is_empty().await);
}

#[tokio::test]
async fn a_block_that_cannot_be_deleted_does_not_keep_the_others() {
    let bucket = TestBucket::new();
    let store = Store::open(config(&bucket));
    let one = slice(5, 3 * BLOCK);
    bucket.fill(one).await;
    bucket.fail_once();
    assert!(store.remove(one).await.is_err());
    assert_eq!(bucket.mem.list("", "", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn short_blocks_are_cached_as_they_are_written() {
    for (cache_large_write, cached) in [(false, [false, true]), (true, [true, true])] {
        let folder = tempfile::tempdir().unwrap();
        let (_cache, volume) = cache_in(folder.path()).await;
        let options = Options { cache_large_write, ..Options::default() };
        let cache = Some(volume.clone());
        let store = Store::open(StoreConfig { cache, options, ..config(&TestBucket::new()) });
        let one = slice(5, BLOCK + 100);
        write(&store, one).finish().await.unwrap();
        let found: Vec<_> = LAYOUT.blocks(one).map(|block| volume.contains(block)).collect();
        assert_eq!(found, cached);
    }
}

#[tokio::test]
async fn removed_blocks_leave_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (_cache, volume) = cache_in(folder.path()).await;
    let cache = Some(volume.clone());
    let store = Store::open(StoreConfig { cache, ..config(&TestBucket::new()) });
    let one = slice(5, 100);
    write(&store, one).finish().await.unwrap();
    assert!(volume.contains(LAYOUT.block(one, 0)));
    store.remove(one).await.unwrap();
    assert!(!volume.contains(LAYOUT.block(one, 0)));
}
