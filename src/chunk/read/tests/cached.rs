//! Reads with a cache on disk.

use tempfile::TempDir;

use crate::chunk::testing::{
    BLOCK, LAYOUT, TestBucket, cache_in, config, content, slice, until, within,
};
use crate::chunk::{Cache, CacheCoverage, Options, Store, StoreConfig, VolumeCache};
use crate::error::Error;
use crate::slice::SliceSize;
use std::sync::Arc;

struct Scene {
    folder: TempDir,
    bucket: Arc<TestBucket>,
    cache: Arc<Cache>,
    volume: Arc<VolumeCache>,
    store: Arc<Store>,
}

impl Scene {
    async fn with(slice: SliceSize, options: Options) -> Self {
        let bucket = TestBucket::with(slice).await;
        Self::within(tempfile::tempdir().unwrap(), bucket, options).await
    }

    async fn within(folder: TempDir, bucket: Arc<TestBucket>, options: Options) -> Self {
        let (cache, volume) = cache_in(folder.path()).await;
        let own = Some(volume.clone());
        let store = Store::open(StoreConfig { cache: own, options, ..config(&bucket) });
        Self { folder, bucket, cache, volume, store }
    }

    /// Loses everything in memory, and nothing on disk.
    async fn restart(self) -> Self {
        let Self { folder, bucket, cache, volume, store } = self;
        store.close().await;
        cache.close().await;
        drop((store, volume, cache));
        Self::within(folder, bucket, Options::default()).await
    }

    fn has(&self, slice: SliceSize) -> bool {
        LAYOUT.blocks(slice).all(|block| self.volume.contains(block))
    }
}

#[tokio::test]
async fn a_second_read_is_served_from_the_disk() {
    let one = slice(5, 2 * BLOCK + 100);
    let scene = Scene::with(one, Options::default()).await;
    scene.store.read(one, 0..one.size).await.unwrap();
    let scene = scene.restart().await;
    for range in [0..one.size, 100..200, BLOCK - 1..BLOCK + 1] {
        let read = scene.store.read(one, range.clone()).await.unwrap().concat();
        assert!(read == content(one)[range.start as usize..range.end as usize]);
    }
    assert_eq!(scene.bucket.count(), (3, 0));
}

#[tokio::test]
async fn read_now_returns_bytes_in_the_page_cache() {
    let one = slice(5, BLOCK);
    let scene = Scene::with(one, Options::default()).await;
    scene.store.read(one, 0..one.size).await.unwrap();
    let scene = scene.restart().await;
    // Opens the file, whose bytes are still in the page cache.
    scene.store.read(one, 0..1).await.unwrap();
    let read = scene.store.read_now(one, 10..2000).unwrap().concat();
    assert!(read == content(one)[10..2000]);
}

#[tokio::test]
async fn bytes_from_the_disk_keep_their_memory_reserved() {
    let one = slice(5, BLOCK);
    let scene = Scene::with(one, Options::default()).await;
    scene.store.read(one, 0..one.size).await.unwrap();
    let scene = scene.restart().await;
    let read = scene.store.read(one, 0..2048).await.unwrap();
    assert_eq!(scene.store.budget().used(), 2048);
    drop(read);
    assert_eq!(scene.store.budget().used(), 0);
}

#[tokio::test]
async fn a_read_of_a_part_prefetches_the_whole_block() {
    let one = slice(5, BLOCK);
    let scene = Scene::with(one, Options::default()).await;
    scene.store.read(one, 1000..1100).await.unwrap();
    until("the block", || scene.has(one)).await;
    assert_eq!(scene.bucket.count(), (1, 1));
}

#[tokio::test]
async fn prefetch_0_disables_the_whole_block_prefetch() {
    let one = slice(5, BLOCK);
    let scene = Scene::with(one, Options { prefetch: 0, ..Options::default() }).await;
    for start in [1000, 5000, 3000] {
        scene.store.read(one, start..start + 100).await.unwrap();
    }
    scene.store.close().await;
    assert_eq!(scene.bucket.count(), (0, 3));
}

#[tokio::test]
async fn a_read_of_a_large_part_fetches_the_whole_block() {
    let one = slice(5, BLOCK);
    let scene = Scene::with(one, Options::default()).await;
    scene.store.read(one, 1..1 + BLOCK / 4 + 1).await.unwrap();
    assert_eq!(scene.bucket.count(), (1, 0));
}

#[tokio::test]
async fn with_partial_only_no_full_block_is_cached() {
    let one = slice(5, BLOCK + 100);
    let options = Options { cache_partial_only: true, ..Options::default() };
    let scene = Scene::with(one, options).await;
    scene.store.read(one, 0..one.size).await.unwrap();
    let cached: Vec<_> = LAYOUT.blocks(one).map(|block| scene.volume.contains(block)).collect();
    assert_eq!(cached, [false, true]);
}

#[tokio::test]
async fn a_slice_is_warmed_up_located_and_evicted() {
    let one = slice(5, 3 * BLOCK);
    let scene = Scene::with(one, Options::default()).await;
    within("warming", scene.store.warm_up(one, 10..BLOCK + 1)).await.unwrap();
    let two = 2 * u64::from(BLOCK);
    let coverage = scene.store.coverage(one, 0..one.size);
    let expected = CacheCoverage {
        cached_blocks: 2,
        cached_bytes: two,
        missing_blocks: 1,
        missing_bytes: u64::from(BLOCK),
    };
    assert_eq!(coverage, expected);
    scene.store.evict(one, 0..one.size);
    assert_eq!(scene.store.coverage(one, 0..one.size).cached_blocks, 0);
    assert_eq!(scene.store.budget().used(), 0);
}

#[tokio::test]
async fn warming_up_a_missing_slice_is_an_error() {
    let scene = Scene::with(slice(5, BLOCK), Options::default()).await;
    let error = scene.store.warm_up(slice(6, BLOCK), 0..BLOCK).await.unwrap_err();
    assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
    let without = Store::open(config(&scene.bucket));
    assert!(matches!(without.warm_up(slice(5, BLOCK), 0..1).await, Err(Error::NotSupported)));
}
