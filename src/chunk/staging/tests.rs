use std::fs;
use std::sync::atomic::AtomicU32;

use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::chunk::testing::{
    BLOCK, LAYOUT, TestBucket, body, cache_in, config, content, slice, until, within, write,
};
use crate::chunk::{Cache, Options, SliceRange, Store, StoreConfig};
use crate::slice::{SliceId, SliceSize};

const HOUR: Duration = Duration::from_hours(1);

struct Scene {
    folder: TempDir,
    bucket: Arc<TestBucket>,
    volume: Arc<VolumeCache>,
    store: Arc<Store>,
    _cache: Arc<Cache>,
}

impl Scene {
    async fn new(writeback: Writeback) -> Self {
        Self::within(tempfile::tempdir().unwrap(), TestBucket::new(), Some(writeback)).await
    }

    async fn within(
        folder: TempDir,
        bucket: Arc<TestBucket>,
        writeback: Option<Writeback>,
    ) -> Self {
        let (cache, volume) = cache_in(folder.path()).await;
        let options = Options { writeback, ..Options::default() };
        let store =
            Store::open(StoreConfig { cache: Some(volume.clone()), options, ..config(&bucket) });
        Self { folder, bucket, volume, store, _cache: cache }
    }

    /// Kills the process and starts another one.
    async fn restart(self, writeback: Option<Writeback>) -> Self {
        let Self { folder, bucket, .. } = self;
        Self::within(folder, bucket, writeback).await
    }

    async fn write(&self, slice: SliceSize) {
        within("writing", write(&self.store, slice).finish()).await.unwrap();
    }

    async fn read(&self, slice: SliceSize) -> Vec<u8> {
        self.store.read(slice, 0..slice.size).await.unwrap().concat()
    }

    async fn staged(&self) -> usize {
        self.volume.staged().await.len()
    }
}

fn delayed(delay: Duration) -> Writeback {
    Writeback { delay, ..Writeback::default() }
}

#[tokio::test]
async fn a_staged_slice_is_stored_before_it_is_in_the_bucket() {
    let scene = Scene::new(Writeback::default()).await;
    scene.bucket.hold();
    let one = slice(5, 2 * BLOCK + 100);
    scene.write(one).await;
    assert!(scene.bucket.is_empty().await);
    assert!(scene.read(one).await == content(one));
    scene.bucket.release();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.bucket.has(one).await);
    assert_eq!(scene.staged().await, 0);
}

#[tokio::test]
async fn staged_blocks_are_synced_soon_after_and_at_once_on_request() {
    let scene = Scene::new(delayed(HOUR)).await;
    let staging = scene.store.staging.as_ref().unwrap();
    scene.write(slice(5, 2 * BLOCK + 100)).await;
    until("the sync", || staging.unsynced.is_empty()).await;
    scene.write(slice(6, 100)).await;
    within("syncing", scene.store.sync_staged()).await.unwrap();
    assert!(staging.unsynced.is_empty());
    assert_eq!((scene.staged().await, scene.bucket.puts()), (4, 0));
}

#[tokio::test]
async fn blocks_that_are_uploaded_first_are_not_synced() {
    let scene = Scene::new(Writeback::default()).await;
    let staging = scene.store.staging.as_ref().unwrap();
    scene.write(slice(5, 2 * BLOCK + 100)).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(staging.unsynced.is_empty());
}

#[tokio::test]
async fn syncing_fails_until_blocks_that_cannot_be_synced_are_in_the_bucket() {
    let scene = Scene::new(Writeback::default()).await;
    scene.bucket.hold();
    let one = slice(5, 100);
    scene.write(one).await;
    // Cannot be opened, as after a failure of the disk.
    let key = LAYOUT.key(LAYOUT.block(one, 0));
    let staged = scene.folder.path().join("a-volume/rawstaging").join(key);
    fs::remove_file(&staged).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&staged).unwrap();
    assert!(within("syncing", scene.store.sync_staged()).await.is_err());
    assert!(within("syncing again", scene.store.sync_staged()).await.is_err());
    scene.bucket.release();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    within("syncing", scene.store.sync_staged()).await.unwrap();
    assert!(scene.bucket.has(one).await);
}

#[tokio::test]
async fn blocks_staged_by_a_killed_process_are_uploaded_by_the_next() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, 2 * BLOCK + 100);
    scene.write(one).await;
    assert_eq!((scene.staged().await, scene.bucket.puts()), (3, 0));
    let scene = scene.restart(Some(delayed(HOUR))).await;
    until("uploads", || scene.bucket.puts() == 3).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.bucket.has(one).await);
    assert_eq!(scene.staged().await, 0);
}

#[tokio::test]
async fn staged_blocks_of_an_earlier_run_are_uploaded_without_writeback_too() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 100)).await;
    let scene = scene.restart(None).await;
    until("the upload", || scene.bucket.puts() == 1).await;
    // New blocks are not staged.
    scene.write(slice(6, 100)).await;
    assert!(scene.bucket.has(slice(6, 100)).await);
}

#[tokio::test]
async fn a_block_that_is_only_staged_is_read() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, BLOCK);
    scene.write(one).await;
    for range in [0..one.size, 100..200] {
        // Eviction leaves only the staged file.
        scene.store.evict(one, 0..one.size);
        let raw = scene.folder.path().join("a-volume/raw").join(LAYOUT.key(LAYOUT.block(one, 0)));
        let _ = fs::remove_file(raw);
        let scene_store = &scene.store;
        let read = scene_store.read(one, range.clone()).await.unwrap().concat();
        assert!(read == content(one)[range.start as usize..range.end as usize]);
    }
    assert_eq!(scene.bucket.puts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_block_is_uploaded_when_it_is_due() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 100)).await;
    sleep(Duration::from_mins(59)).await;
    assert_eq!(scene.bucket.puts(), 0);
    sleep(Duration::from_mins(2)).await;
    until("the upload", || scene.bucket.puts() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn blocks_are_uploaded_only_in_the_upload_hours() {
    let (folder, bucket) = (tempfile::tempdir().unwrap(), TestBucket::new());
    let (_cache, volume) = cache_in(folder.path()).await;
    let hour = Arc::new(AtomicU32::new(12));
    let clock = hour.clone();
    let rules = Writeback { hours: Some("22-6".parse().unwrap()), ..Writeback::default() };
    let options = Options { writeback: Some(rules.clone()), ..Options::default() };
    let staging =
        Staging::with_clock(volume.clone(), Some(rules), move || clock.load(Ordering::Relaxed));
    let cache = Some(volume);
    let config = StoreConfig { cache, options, ..config(&bucket) };
    let store = Store::with_staging(config, Some(Arc::new(staging)));
    write(&store, slice(5, 100)).finish().await.unwrap();
    sleep(HOUR).await;
    assert_eq!(bucket.puts(), 0);
    hour.store(22, Ordering::Relaxed);
    sleep(Duration::from_secs(61)).await;
    until("the upload", || bucket.puts() == 1).await;
}

#[tokio::test]
async fn a_flush_ignores_the_delay() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 3 * BLOCK)).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.bucket.has(slice(5, 3 * BLOCK)).await);
}

#[tokio::test(start_paused = true)]
async fn failed_uploads_are_retried_with_growing_delays() {
    let scene = Scene::new(Writeback::default()).await;
    scene.bucket.fail(true);
    scene.write(slice(5, 100)).await;
    sleep(HOUR).await;
    let tries = scene.bucket.puts();
    assert!((60..=70).contains(&tries), "{tries}");
    assert_eq!(scene.staged().await, 1);
    scene.bucket.fail(false);
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.bucket.has(slice(5, 100)).await);
}

#[tokio::test]
async fn blocks_that_cannot_be_staged_are_uploaded_directly() {
    let bucket = TestBucket::new();
    // A cache in memory stages nothing.
    let cache = Cache::open(crate::chunk::CacheOptions::default()).await.unwrap();
    let volume = cache.volume("a-volume", LAYOUT, None).unwrap();
    let options = Options { writeback: Some(Writeback::default()), ..Options::default() };
    let store = Store::open(StoreConfig { cache: Some(volume), options, ..config(&bucket) });
    write(&store, slice(5, 2 * BLOCK)).finish().await.unwrap();
    assert!(bucket.has(slice(5, 2 * BLOCK)).await);
    assert_eq!(store.staging.as_ref().unwrap().errors(), 2);
}

#[tokio::test]
async fn only_blocks_below_the_threshold_are_staged() {
    let writeback = Writeback { threshold: Some(BLOCK), ..delayed(HOUR) };
    let scene = Scene::new(writeback).await;
    scene.write(slice(5, BLOCK + 100)).await;
    assert_eq!((scene.staged().await, scene.bucket.puts()), (1, 1));
}

#[tokio::test]
async fn a_slice_that_is_removed_while_it_is_staged_is_never_uploaded() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 2 * BLOCK)).await;
    scene.store.remove(slice(5, 2 * BLOCK)).await.unwrap();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert_eq!(scene.bucket.puts(), 0);
    assert_eq!(scene.staged().await, 0);
}

#[tokio::test]
async fn a_slice_that_is_removed_during_its_upload_leaves_no_object() {
    let scene = Scene::new(Writeback::default()).await;
    scene.bucket.hold();
    let one = slice(5, 100);
    scene.write(one).await;
    until("the upload", || scene.bucket.puts() == 1).await;
    // As if the delete request overtook the write request.
    let (removed, ()) = tokio::join!(scene.store.remove(one), async {
        while scene.store.staging.as_ref().unwrap().contains(LAYOUT.block(one, 0)) {
            tokio::task::yield_now().await;
        }
        scene.bucket.release();
    });
    removed.unwrap();
    within("closing", scene.store.close()).await;
    assert!(scene.bucket.is_empty().await);
}

#[tokio::test]
async fn an_aborted_slice_is_no_longer_staged() {
    let scene = Scene::new(delayed(HOUR)).await;
    let mut upload = write(&scene.store, slice(5, 100));
    upload.finish().await.unwrap();
    upload.abort().await.unwrap();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert_eq!(scene.bucket.puts(), 0);
}

#[tokio::test]
async fn a_compacted_slice_is_never_staged() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, 100);
    scene.write(one).await;
    let ranges = [SliceRange { slice: one, range: 0..100 }];
    scene.store.compact(&ranges, SliceId(9), 0).await.unwrap();
    assert_eq!((scene.staged().await, scene.bucket.puts()), (1, 1));
    assert!(scene.read(slice(9, 100)).await == body(LAYOUT.block(one, 0)));
}

#[tokio::test]
async fn a_closed_store_leaves_staged_blocks_to_the_next() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 100)).await;
    within("closing", scene.store.close()).await;
    assert_eq!((scene.staged().await, scene.bucket.puts()), (1, 0));
}

#[tokio::test]
async fn a_block_that_another_process_has_uploaded_leaves_the_queue() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, 100);
    scene.write(one).await;
    scene.bucket.fill(one).await;
    scene.volume.unstage(LAYOUT.block(one, 0)).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert_eq!(scene.bucket.puts(), 0);
}
