//! The data of one volume: what all its reads and uploads share.

use std::sync::{Arc, Weak};

use futures::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::bucket::Bucket;
use super::flight::Flights;
use super::hot::Hot;
use super::prefetch::Followers;
use super::trail::Trail;
use super::{Budget, Compression, Layout, Options, Upload};
use crate::error::Result;
use crate::object::ObjectStore;
use crate::slice::{SliceId, SliceSize};

/// The budget of a store that was not given one: JuiceFS's default of `--buffer-size`.
const DEFAULT_BUDGET: usize = 300 << 20;
/// Objects of one slice that are deleted at the same time.
const DELETES: usize = 16;

/// Slices in the bucket, and what is kept of them here.
pub struct Store {
    pub(super) bucket: Bucket,
    pub(super) budget: Arc<Budget>,
    pub(super) hot: Arc<Hot>,
    pub(super) flights: Arc<Flights>,
    pub(super) followers: Followers,
    pub(super) trail: Trail,
    /// The turn of a read that is too large to be held at once.
    pub(super) piecemeal: Semaphore,
    /// For the tasks that this store starts, also when it is asked by a thread of none.
    pub(super) runtime: Handle,
    pub(super) me: Weak<Self>,
}

impl Store {
    /// A store with a budget of its own, without a cache on disk.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        layout: Layout,
        compression: Compression,
    ) -> Arc<Self> {
        let budget = Budget::new(DEFAULT_BUDGET);
        Self::open(objects, layout, compression, budget, &Options::default())
    }

    /// Must be called within the runtime that the store is to use.
    pub fn open(
        objects: Arc<dyn ObjectStore>,
        layout: Layout,
        compression: Compression,
        budget: Arc<Budget>,
        options: &Options,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            bucket: Bucket::new(objects, layout, compression, options),
            // Half: the rest is for what is on its way, in and out.
            hot: Hot::new(budget.capacity() / 2, Arc::clone(&budget)),
            budget,
            flights: Arc::default(),
            followers: Followers::new(options.prefetch),
            trail: Trail::default(),
            piecemeal: Semaphore::new(1),
            runtime: Handle::current(),
            me: me.clone(),
        })
    }

    pub fn layout(&self) -> Layout {
        self.bucket.layout
    }

    /// The memory that this store shares with its users.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Begins a slice.
    pub fn upload(self: &Arc<Self>, id: SliceId, tier: u8) -> Upload {
        Upload::new(Arc::clone(self), id, tier)
    }

    /// Deletes every object of a slice; one that is not there is fine. One that fails does not keep
    /// the others from going.
    pub async fn remove(&self, slice: SliceSize) -> Result<()> {
        let blocks = self.layout().blocks(slice);
        let deletes = blocks.map(|block| async move {
            self.hot.forget(block);
            self.bucket.delete(block).await
        });
        stream::iter(deletes)
            .buffer_unordered(DELETES)
            .fold(Ok(()), |all: Result<()>, one| async move { all.and(one) })
            .await
    }
}
