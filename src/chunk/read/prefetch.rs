//! Prefetch: blocks fetched before a reader asks for them.
//!
//! There are two kinds. A stream asks for the blocks ahead of it; such a fetch has its memory at once
//! or does not start. After a read of a part of a block, the whole block may be useful later; these fetches
//! queue, and only a few run at a time.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Purpose;
use super::stream::{ReadStream, StreamState};
use crate::chunk::{BlockKey, Store};
use crate::sync::Mutex;

/// The fraction of the memory that prefetching leaves free.
const SPARE: usize = 8;

/// Whole blocks to be fetched after a part of each was read. Blocks beyond the limit are not
/// fetched.
pub struct WholeBlockPrefetch {
    waiting: Mutex<HashSet<BlockKey>>,
    limit: usize,
    permits: Semaphore,
}

impl WholeBlockPrefetch {
    /// Allows `concurrency` fetches at a time; 0 disables the prefetch.
    pub fn new(concurrency: usize) -> Self {
        let concurrency = concurrency.min(Semaphore::MAX_PERMITS);
        // The queue length of JuiceFS.
        let limit = if concurrency == 0 { 0 } else { concurrency.saturating_mul(4).max(10) };
        Self { waiting: Mutex::default(), limit, permits: Semaphore::new(concurrency) }
    }

    fn add(&self, block: BlockKey) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.len() < self.limit && waiting.insert(block)
    }

    fn remove(&self, block: BlockKey) {
        self.waiting.lock().remove(&block);
    }
}

impl Store {
    /// Starts to fetch a block that the stream will read soon, if there is memory for it. Never
    /// waits. Returns whether the block is available or being fetched. If it is not, memory is
    /// short, and the caller should ask again later.
    pub fn prefetch(self: &Arc<Self>, block: BlockKey, stream: &ReadStream) -> bool {
        self.is_local_or_fetching(block) || self.try_prefetch(block, Some(stream.state()))
    }

    /// Queues a fetch of a whole block of which a part was read.
    pub(super) fn prefetch_whole_block(&self, block: BlockKey) {
        let Some(store) = self.me.upgrade() else { return };
        if self.is_local_or_fetching(block) || !self.whole_block_prefetch.add(block) {
            return;
        }
        self.runtime.spawn(async move {
            // The semaphore is never closed, so this cannot fail.
            let _permit = store.whole_block_prefetch.permits.acquire().await;
            if !store.is_local_or_fetching(block)
                && store.try_prefetch(block, None)
                && let Some(waiter) = store.single_flight.watch(block)
            {
                // An error is reported to the reader that needs the block.
                drop(waiter.wait().await);
            }
            store.whole_block_prefetch.remove(block);
        });
    }

    /// Whether the block can be read without the bucket, or is being fetched.
    fn is_local_or_fetching(&self, block: BlockKey) -> bool {
        self.block_cache.contains(block)
            || self.single_flight.contains(block)
            || self.cache.as_ref().is_some_and(|cache| cache.contains(block))
    }

    /// Never waits for memory, and leaves some of it to readers that do. They can take the memory
    /// of prefetched blocks, but only when these have arrived.
    fn try_prefetch(&self, block: BlockKey, stream: Option<&Arc<StreamState>>) -> bool {
        let size = block.size as usize;
        let Some(room) = self.block_cache.room_for_unread(size) else { return false };
        let spare = self.budget.capacity() / SPARE;
        let Some(reserved) = self.budget.try_reserve_leaving(size, spare) else { return false };
        if let Some(fetch) = self.single_flight.start_unwanted(block) {
            self.start_fetch(fetch, reserved, Purpose::Prefetch(stream.cloned(), room));
        }
        true
    }
}
