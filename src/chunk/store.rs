//! The data of one volume: what all its reads and uploads share.

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
use super::flight::Flights;
use super::hot::Hot;
use super::metrics::rewritten_sizes;
use super::prefetch::Followers;
use super::staging::Staging;
use super::trail::Trail;
use super::{BlockKey, Budget, Compression, Layout, Options, Upload};
use crate::error::{Error, Result};
use crate::object::ObjectStore;
use crate::slice::{SliceId, SliceSize};

/// The budget of a store that was not given one: JuiceFS's default of `--buffer-size`.
const DEFAULT_BUDGET: usize = 300 << 20;
/// Objects of one slice that are deleted at the same time.
const DELETES: usize = 16;
/// Percent of the budget that dirty data may take, so that reads always find some.
const DIRTY_SHARE: usize = 80;
/// How long close waits for what is being uploaded or deleted.
const GRACE: Duration = Duration::from_secs(10);

/// Slices in the bucket, and what is kept of them here.
pub struct Store {
    pub(super) bucket: Bucket,
    pub(super) cache: Option<Arc<VolumeCache>>,
    pub(super) staging: Option<Arc<Staging>>,
    pub(super) budget: Arc<Budget>,
    dirty: Arc<Budget>,
    pub(super) hot: Arc<Hot>,
    pub(super) flights: Arc<Flights>,
    pub(super) followers: Followers,
    pub(super) trail: Trail,
    /// The turn of a read that is too large to be held at once.
    pub(super) piecemeal: Semaphore,
    pub(super) options: Options,
    pub(super) rewritten: Option<Histogram>,
    /// For the tasks that this store starts, also when it is asked by a thread of none.
    pub(super) runtime: Handle,
    pub(super) me: Weak<Self>,
    /// No work is begun from now on.
    pub(super) closing: CancellationToken,
    /// What close waits for.
    tasks: TaskTracker,
    /// Ends it wherever it is; also when the store is dropped.
    stop: CancellationToken,
    _stop: DropGuard,
}

/// What a store is made of.
pub struct Parts {
    pub objects: Arc<dyn ObjectStore>,
    pub layout: Layout,
    pub compression: Compression,
    pub cache: Option<Arc<VolumeCache>>,
    pub budget: Arc<Budget>,
    pub options: Options,
}

impl Store {
    /// A store with a budget of its own, without a cache on disk. Must be called within a runtime.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        layout: Layout,
        compression: Compression,
    ) -> Arc<Self> {
        let (budget, options) = (Budget::new(DEFAULT_BUDGET), Options::default());
        Self::open(Parts { objects, layout, compression, cache: None, budget, options })
    }

    /// Must be called within the runtime that the store is to use.
    pub fn open(parts: Parts) -> Arc<Self> {
        let cache = parts.cache.as_ref().filter(|_| !parts.options.read_only);
        let staging = cache
            .map(|cache| Staging::new(Arc::clone(cache), parts.options.writeback.clone()))
            .map(Arc::new);
        Self::with_staging(parts, staging)
    }

    pub(super) fn with_staging(parts: Parts, staging: Option<Arc<Staging>>) -> Arc<Self> {
        let Parts { objects, layout, compression, cache, budget, options } = parts;
        let stop = CancellationToken::new();
        let store = Arc::new_cyclic(|me| Self {
            bucket: Bucket::new(objects, layout, compression, &options),
            cache,
            staging,
            // Half: the rest is for what is on its way, in and out.
            hot: Hot::new(budget.capacity() / 2, Arc::clone(&budget)),
            dirty: budget.part(budget.capacity() / 100 * DIRTY_SHARE),
            budget,
            flights: Arc::default(),
            followers: Followers::new(options.prefetch),
            trail: Trail::default(),
            piecemeal: Semaphore::new(1),
            options,
            // Its name and its buckets are right, so there is one.
            rewritten: rewritten_sizes().ok(),
            runtime: Handle::current(),
            me: me.clone(),
            closing: stop.child_token(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            _stop: stop.drop_guard(),
        });
        if let Some(staging) = &store.staging {
            let (uploader, closing) = (Arc::clone(staging), store.closing.clone());
            let run = uploader.run(Arc::downgrade(&store));
            store.work(async move {
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = run => {}
                }
            });
        }
        store
    }

    pub fn layout(&self) -> Layout {
        self.bucket.layout
    }

    /// The memory that this store shares with its users.
    /// What this volume may take of the cache when others need room.
    pub fn share_cache(&self, bytes: u64) {
        if let Some(cache) = &self.cache {
            cache.set_share(Some(bytes));
        }
    }

    /// What of the budget is for dirty data, of all mounts of the volume.
    pub fn dirty(&self) -> &Arc<Budget> {
        &self.dirty
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Begins a slice. Its blocks may be staged.
    pub fn upload(self: &Arc<Self>, id: SliceId, tier: u8) -> Upload {
        Upload::new(Arc::clone(self), id, tier, true)
    }

    /// Deletes every object of a slice, also what is staged and cached of it; one that is not there
    /// is fine. One that fails does not keep the others from going.
    pub async fn remove(&self, slice: SliceSize) -> Result<()> {
        self.remove_blocks(self.layout().blocks(slice)).await
    }

    /// Waits until everything that is staged is in the bucket, however long that takes.
    /// [`Error::Interrupted`] if the store is closed before.
    pub async fn flush_staged(&self) -> Result<()> {
        let Some(staging) = &self.staging else { return Ok(()) };
        tokio::select! {
            () = staging.flush() => Ok(()),
            () = self.closing.cancelled() => Err(Error::Interrupted),
        }
    }

    /// Ends what the store does by itself. What is staged and not uploaded by then stays staged.
    /// Reading and writing still work, but no task of theirs outlives its caller.
    pub async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }

    pub(super) async fn remove_blocks(
        &self,
        blocks: impl IntoIterator<Item = BlockKey>,
    ) -> Result<()> {
        let removals = blocks.into_iter().map(|block| async move {
            self.hot.forget(block);
            // Off the list before its object goes: an upload that ends later sees it and cleans up.
            // Off the disk, too: a crash in between must not bring it back.
            if let Some(staging) = &self.staging {
                staging.drop_block(block).await;
            }
            if let Some(cache) = &self.cache {
                cache.remove(block);
            }
            self.bucket.delete(block).await
        });
        stream::iter(removals)
            .buffer_unordered(DELETES)
            .fold(Ok(()), |all: Result<()>, one| async move { all.and(one) })
            .await
    }

    pub(super) fn cache_block(&self, block: BlockKey, body: &Bytes) {
        if let Some(cache) = &self.cache {
            cache.put(block, body.clone());
        }
    }

    /// Runs work that close waits for, and cuts off if it takes too long.
    pub(super) fn work(&self, work: impl Future<Output = ()> + Send + 'static) {
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
