//! The data of one volume: the state that all its reads and uploads share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use prometheus::Histogram;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::bucket::Bucket;
use super::cache::VolumeCache;
use super::metrics::compacted_sizes;
use super::read::block_cache::BlockCache;
use super::read::prefetch::WholeBlockPrefetch;
use super::read::sequential::SequentialReads;
use super::read::single_flight::SingleFlight;
use super::read::stream::Streams;
use super::staging::Staging;
use super::{BlockKey, Budget, Compression, Layout, Options, Upload};
use crate::error::{Error, Result};
use crate::object::ObjectStore;
use crate::slice::{SliceId, SliceSize};

/// The budget of a store that is not given one: JuiceFS's default of `--buffer-size`.
const DEFAULT_BUDGET: usize = 300 << 20;
/// Objects of one slice that are deleted at the same time.
const CONCURRENT_DELETES: usize = 16;
/// Percentage of the budget that dirty data may take, so that some is always left for reads.
const DIRTY_PERCENT: usize = 80;
/// How long `close` waits for running uploads and deletions.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The slices of one volume in the bucket, with their caches.
pub struct Store {
    pub(super) bucket: Bucket,
    pub(super) cache: Option<Arc<VolumeCache>>,
    pub(super) staging: Option<Arc<Staging>>,
    pub(super) budget: Arc<Budget>,
    dirty: Arc<Budget>,
    pub(super) block_cache: Arc<BlockCache>,
    pub(super) single_flight: Arc<SingleFlight>,
    pub(super) whole_block_prefetch: WholeBlockPrefetch,
    pub(super) sequential_reads: SequentialReads,
    pub(super) streams: Streams,
    /// Held by a read that needs more memory than the budget has: one at a time.
    pub(super) oversized_read: Semaphore,
    pub(super) options: Options,
    pub(super) compacted_sizes: Option<Histogram>,
    /// For the tasks that this store starts, also when the caller's thread belongs to no runtime.
    pub(super) runtime: Handle,
    pub(super) me: Weak<Self>,
    /// Cancelled by `close`: no new background work starts.
    pub(super) closing: CancellationToken,
    /// The tasks that `close` waits for.
    tasks: TaskTracker,
    /// Aborts these tasks. Also cancelled when the store is dropped.
    stop: CancellationToken,
    _stop: DropGuard,
}

/// What a store is built from.
pub struct StoreConfig {
    pub objects: Arc<dyn ObjectStore>,
    pub layout: Layout,
    pub compression: Compression,
    pub cache: Option<Arc<VolumeCache>>,
    pub budget: Arc<Budget>,
    pub options: Options,
}

impl Store {
    /// Creates a store with a budget of its own and no cache on disk. Must be called within a
    /// runtime.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        layout: Layout,
        compression: Compression,
    ) -> Arc<Self> {
        let (budget, options) = (Budget::new(DEFAULT_BUDGET), Options::default());
        Self::open(StoreConfig { objects, layout, compression, cache: None, budget, options })
    }

    /// Creates a store. Must be called within the runtime that the store will use.
    pub fn open(config: StoreConfig) -> Arc<Self> {
        let cache = config.cache.as_ref().filter(|_| !config.options.read_only);
        let staging = cache
            .map(|cache| Staging::new(Arc::clone(cache), config.options.writeback.clone()))
            .map(Arc::new);
        Self::with_staging(config, staging)
    }

    pub(super) fn with_staging(config: StoreConfig, staging: Option<Arc<Staging>>) -> Arc<Self> {
        let StoreConfig { objects, layout, compression, cache, budget, options } = config;
        let stop = CancellationToken::new();
        let store = Arc::new_cyclic(|me| Self {
            bucket: Bucket::new(objects, layout, compression, &options),
            cache,
            staging,
            // Half of the budget: the rest is for transfers in progress, in both directions.
            block_cache: BlockCache::new(budget.capacity() / 2, Arc::clone(&budget)),
            dirty: budget.part(budget.capacity() / 100 * DIRTY_PERCENT),
            budget,
            single_flight: Arc::default(),
            whole_block_prefetch: WholeBlockPrefetch::new(options.prefetch),
            sequential_reads: SequentialReads::default(),
            streams: Streams::default(),
            oversized_read: Semaphore::new(1),
            options,
            // Cannot fail: the name and the buckets are valid.
            compacted_sizes: compacted_sizes().ok(),
            runtime: Handle::current(),
            me: me.clone(),
            closing: stop.child_token(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            _stop: stop.drop_guard(),
        });
        if let Some(staging) = &store.staging {
            let (uploader, closing) = (Arc::clone(staging), store.closing.clone());
            let (run, synced) = (uploader.run(Arc::downgrade(&store)), Arc::clone(staging));
            store.spawn(async move {
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = run => {}
                    () = synced.sync_in_background() => {}
                }
            });
        }
        store
    }

    pub fn layout(&self) -> Layout {
        self.bucket.layout
    }

    /// Limits how much of the cache this volume may take when other volumes need room.
    pub fn share_cache(&self, bytes: u64) {
        if let Some(cache) = &self.cache {
            cache.set_share(Some(bytes));
        }
    }

    /// Returns the part of the budget for dirty data, shared by all mounts of the volume.
    pub fn dirty(&self) -> &Arc<Budget> {
        &self.dirty
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Begins to upload a slice. Its blocks may be staged.
    pub fn upload(self: &Arc<Self>, id: SliceId, tier: u8) -> Upload {
        Upload::new(Arc::clone(self), id, tier, true)
    }

    /// Deletes every block of a slice from the bucket, from staging and from the cache. A missing
    /// block is not an error, and a failure does not stop the other deletions.
    pub async fn remove(&self, slice: SliceSize) -> Result<()> {
        self.remove_blocks(self.layout().blocks(slice)).await
    }

    /// Waits until all staged blocks are in the bucket, however long that takes. Returns
    /// [`Error::Interrupted`] if the store is closed first.
    pub async fn flush_staged(&self) -> Result<()> {
        let Some(staging) = &self.staging else { return Ok(()) };
        tokio::select! {
            () = staging.flush() => Ok(()),
            () = self.closing.cancelled() => Err(Error::Interrupted),
        }
    }

    /// Returns when all stored blocks survive a crash of this machine.
    pub async fn sync_staged(&self) -> Result<()> {
        match &self.staging {
            Some(staging) => staging.sync().await,
            None => Ok(()),
        }
    }

    /// Ends all background work. Blocks that are staged and not uploaded by then stay staged. Reads
    /// and writes still work afterwards, but none of their tasks outlives its caller.
    pub async fn close(&self) {
        // A failure is logged.
        let _ = self.sync_staged().await;
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }

    pub(super) async fn remove_blocks(
        &self,
        blocks: impl IntoIterator<Item = BlockKey>,
    ) -> Result<()> {
        let removals = blocks.into_iter().map(|block| async move {
            self.block_cache.remove(block);
            // Off the upload queue before the object is deleted, so that an upload that ends later
            // notices and deletes its object. Off the disk, too: a crash in between must not bring
            // the block back.
            if let Some(staging) = &self.staging {
                staging.discard(block).await;
            }
            if let Some(cache) = &self.cache {
                cache.remove(block);
            }
            self.bucket.delete(block).await
        });
        stream::iter(removals)
            .buffer_unordered(CONCURRENT_DELETES)
            .fold(Ok(()), |all: Result<()>, one| async move { all.and(one) })
            .await
    }

    pub(super) fn cache_block(&self, block: BlockKey, body: &Bytes) {
        if let Some(cache) = &self.cache {
            cache.put(block, body.clone());
        }
    }

    /// Runs a task that `close` waits for and aborts if it takes too long.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let work = async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = work => {}
            }
        };
        self.tasks.spawn_on(work, &self.runtime);
    }
}
