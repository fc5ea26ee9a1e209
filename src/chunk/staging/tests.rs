use std::fs;
use std::sync::atomic::AtomicU32;

use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::chunk::testing::{
    BLOCK, LAYOUT, Probe, body, cache_in, content, parts, slice, until, within, write,
};
use crate::chunk::{Cache, Fragment, Options, Parts, Store};
use crate::slice::{SliceId, SliceSize};

const HOUR: Duration = Duration::from_hours(1);

struct Scene {
    folder: TempDir,
    probe: Arc<Probe>,
    volume: Arc<VolumeCache>,
    store: Arc<Store>,
    _cache: Arc<Cache>,
}

impl Scene {
    async fn new(writeback: Writeback) -> Self {
        Self::within(tempfile::tempdir().unwrap(), Probe::new(), Some(writeback)).await
    }

    async fn within(folder: TempDir, probe: Arc<Probe>, writeback: Option<Writeback>) -> Self {
        let (cache, volume) = cache_in(folder.path()).await;
        let options = Options { writeback, ..Options::default() };
        let store = Store::open(Parts { cache: Some(volume.clone()), options, ..parts(&probe) });
        Self { folder, probe, volume, store, _cache: cache }
    }

    /// The process is killed, and another one comes.
    async fn restart(self, writeback: Option<Writeback>) -> Self {
        let Self { folder, probe, .. } = self;
        Self::within(folder, probe, writeback).await
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
    scene.probe.hold();
    let one = slice(5, 2 * BLOCK + 100);
    scene.write(one).await;
    assert!(scene.probe.is_empty().await);
    assert!(scene.read(one).await == content(one));
    scene.probe.release();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.probe.has(one).await);
    assert_eq!(scene.staged().await, 0);
}

#[tokio::test]
async fn what_a_killed_process_staged_is_uploaded_by_the_next() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, 2 * BLOCK + 100);
    scene.write(one).await;
    assert_eq!((scene.staged().await, scene.probe.puts()), (3, 0));
    let scene = scene.restart(Some(delayed(HOUR))).await;
    until("uploads", || scene.probe.puts() == 3).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.probe.has(one).await);
    assert_eq!(scene.staged().await, 0);
}

#[tokio::test]
async fn leftovers_are_uploaded_without_writeback_too() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 100)).await;
    let scene = scene.restart(None).await;
    until("the upload", || scene.probe.puts() == 1).await;
    // And what is written now is not staged.
    scene.write(slice(6, 100)).await;
    assert!(scene.probe.has(slice(6, 100)).await);
}

#[tokio::test]
async fn a_block_that_is_only_staged_is_read() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, BLOCK);
    scene.write(one).await;
    for range in [0..one.size, 100..200] {
        // The cache may evict what is staged; only the staged file stays then.
        scene.store.evict(one, 0..one.size);
        let raw = scene.folder.path().join("a-volume/raw").join(LAYOUT.key(LAYOUT.block(one, 0)));
        let _ = fs::remove_file(raw);
        let scene_store = &scene.store;
        let read = scene_store.read(one, range.clone()).await.unwrap().concat();
        assert!(read == content(one)[range.start as usize..range.end as usize]);
    }
    assert_eq!(scene.probe.puts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_block_goes_when_its_time_has_come() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 100)).await;
    sleep(Duration::from_mins(59)).await;
    assert_eq!(scene.probe.puts(), 0);
    sleep(Duration::from_mins(2)).await;
    until("the upload", || scene.probe.puts() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn blocks_go_in_the_hours_of_uploading_only() {
    let (folder, probe) = (tempfile::tempdir().unwrap(), Probe::new());
    let (_cache, volume) = cache_in(folder.path()).await;
    let hour = Arc::new(AtomicU32::new(12));
    let clock = hour.clone();
    let rules = Writeback { hours: Some("22-6".parse().unwrap()), ..Writeback::default() };
    let options = Options { writeback: Some(rules.clone()), ..Options::default() };
    let staging =
        Staging::with_clock(volume.clone(), Some(rules), move || clock.load(Ordering::Relaxed));
    let cache = Some(volume);
    let parts = Parts { cache, options, ..parts(&probe) };
    let store = Store::with_staging(parts, Some(Arc::new(staging)));
    write(&store, slice(5, 100)).finish().await.unwrap();
    sleep(HOUR).await;
    assert_eq!(probe.puts(), 0);
    hour.store(22, Ordering::Relaxed);
    sleep(Duration::from_secs(61)).await;
    until("the upload", || probe.puts() == 1).await;
}

#[tokio::test]
async fn flushing_does_not_wait_for_the_time() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 3 * BLOCK)).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.probe.has(slice(5, 3 * BLOCK)).await);
}

#[tokio::test(start_paused = true)]
async fn a_failing_bucket_is_tried_again_with_growing_pauses() {
    let scene = Scene::new(Writeback::default()).await;
    scene.probe.fail(true);
    scene.write(slice(5, 100)).await;
    sleep(HOUR).await;
    let tries = scene.probe.puts();
    assert!((60..=70).contains(&tries), "{tries}");
    assert_eq!(scene.staged().await, 1);
    scene.probe.fail(false);
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert!(scene.probe.has(slice(5, 100)).await);
}

#[tokio::test]
async fn what_cannot_be_staged_is_uploaded_directly() {
    let probe = Probe::new();
    // Nothing can be staged in memory.
    let cache = Cache::open(crate::chunk::CacheOptions::default()).await.unwrap();
    let volume = cache.volume("a-volume", LAYOUT, None).unwrap();
    let options = Options { writeback: Some(Writeback::default()), ..Options::default() };
    let store = Store::open(Parts { cache: Some(volume), options, ..parts(&probe) });
    write(&store, slice(5, 2 * BLOCK)).finish().await.unwrap();
    assert!(probe.has(slice(5, 2 * BLOCK)).await);
    assert_eq!(store.staging.as_ref().unwrap().errors(), 2);
}

#[tokio::test]
async fn only_blocks_below_the_threshold_are_staged() {
    let writeback = Writeback { threshold: Some(BLOCK), ..delayed(HOUR) };
    let scene = Scene::new(writeback).await;
    scene.write(slice(5, BLOCK + 100)).await;
    assert_eq!((scene.staged().await, scene.probe.puts()), (1, 1));
}

#[tokio::test]
async fn a_slice_that_is_removed_while_it_is_staged_is_never_uploaded() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 2 * BLOCK)).await;
    scene.store.remove(slice(5, 2 * BLOCK)).await.unwrap();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert_eq!(scene.probe.puts(), 0);
    assert_eq!(scene.staged().await, 0);
}

#[tokio::test]
async fn a_slice_that_is_removed_while_it_goes_up_leaves_nothing() {
    let scene = Scene::new(Writeback::default()).await;
    scene.probe.hold();
    let one = slice(5, 100);
    scene.write(one).await;
    until("the upload", || scene.probe.puts() == 1).await;
    // As if the request to delete overtook the one to write.
    let (removed, ()) = tokio::join!(scene.store.remove(one), async {
        while scene.store.staging.as_ref().unwrap().contains(LAYOUT.block(one, 0)) {
            tokio::task::yield_now().await;
        }
        scene.probe.release();
    });
    removed.unwrap();
    within("closing", scene.store.close()).await;
    assert!(scene.probe.is_empty().await);
}

#[tokio::test]
async fn an_aborted_slice_is_not_staged_any_more() {
    let scene = Scene::new(delayed(HOUR)).await;
    let mut upload = write(&scene.store, slice(5, 100));
    upload.finish().await.unwrap();
    upload.abort().await.unwrap();
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert_eq!(scene.probe.puts(), 0);
}

#[tokio::test]
async fn a_rewritten_slice_is_never_staged() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, 100);
    scene.write(one).await;
    let fragments = [Fragment { slice: one, off: 0, len: 100 }];
    scene.store.rewrite(&fragments, SliceId(9), 0).await.unwrap();
    assert_eq!((scene.staged().await, scene.probe.puts()), (1, 1));
    assert!(scene.read(slice(9, 100)).await == body(LAYOUT.block(one, 0)));
}

#[tokio::test]
async fn a_closed_store_leaves_what_is_staged_to_the_next() {
    let scene = Scene::new(delayed(HOUR)).await;
    scene.write(slice(5, 100)).await;
    within("closing", scene.store.close()).await;
    assert_eq!((scene.staged().await, scene.probe.puts()), (1, 0));
}

#[tokio::test]
async fn a_block_that_another_process_has_uploaded_is_settled() {
    let scene = Scene::new(delayed(HOUR)).await;
    let one = slice(5, 100);
    scene.write(one).await;
    scene.probe.fill(one).await;
    scene.volume.unstage(LAYOUT.block(one, 0)).await;
    within("flushing", scene.store.flush_staged()).await.unwrap();
    assert_eq!(scene.probe.puts(), 0);
}
