//! Whole blocks kept in memory for a short while, so that the next small read of the same block
//! needs no request.
//!
//! They are kept only while memory is plentiful: when something waits for memory of the budget,
//! blocks are evicted. The cache on disk is [`Cache`](crate::chunk::Cache).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;

use crate::chunk::{BlockKey, Budget, Reclaim, Reserved};
use crate::sync::{Mutex, MutexGuard};

/// The blocks of one volume. Each body carries its memory reservation, which lasts until the last
/// reader drops the bytes, even after eviction.
pub struct BlockCache {
    entries: Mutex<Entries>,
    /// Bytes.
    capacity: usize,
    budget: Arc<Budget>,
}

struct Entries {
    blocks: LruCache<BlockKey, CachedBlock>,
    bytes: usize,
    unread: usize,
}

struct CachedBlock {
    body: Bytes,
    /// Prefetched and not read yet.
    unread: bool,
}

/// A body and the memory reserved for it. Both end with the last [`Bytes`] of it.
struct ReservedBody {
    body: Bytes,
    _reserved: Reserved,
}

impl AsRef<[u8]> for ReservedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns the body with its reservation tied to it.
pub fn with_reservation(body: Bytes, reserved: Reserved) -> Bytes {
    Bytes::from_owner(ReservedBody { body, _reserved: reserved })
}

impl BlockCache {
    pub fn new(capacity: usize, budget: Arc<Budget>) -> Arc<Self> {
        let entries = Entries { blocks: LruCache::unbounded(), bytes: 0, unread: 0 };
        let cache = Arc::new(Self { entries: Mutex::new(entries), capacity, budget });
        let reclaimer: Arc<dyn Reclaim> = cache.clone();
        cache.budget.reclaim_from(Arc::downgrade(&reclaimer));
        cache
    }

    /// Returns bytes `range` of a block, if it is cached.
    pub fn read(&self, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let mut entries = self.lock();
        let entry = entries.blocks.get_mut(&block)?;
        let was_unread = std::mem::take(&mut entry.unread);
        let bytes = entry.body.slice(range.start as usize..range.end as usize);
        if was_unread {
            entries.unread -= block.size as usize;
        }
        // A stream that has read a block to its end does not come back to it.
        if range.end == block.size {
            entries.blocks.demote(&block);
        }
        Some(bytes)
    }

    /// Returns the bytes of all cached blocks.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        self.lock().blocks.contains(&block)
    }

    /// Whether prefetching `bytes` more would only evict blocks that were prefetched before and not
    /// read yet.
    pub fn is_full_of_unread(&self, bytes: usize) -> bool {
        self.lock().unread + bytes > self.capacity
    }

    /// Caches a block, unless something waits for memory.
    pub fn insert(&self, block: BlockKey, body: Bytes, unread: bool) {
        let size = block.size as usize;
        let mut evicted = Vec::new();
        let mut entries = self.lock();
        // A waiter registers itself before it reclaims memory here, so under this lock either this
        // sees the waiter, or the waiter sees the block.
        if size > self.capacity || self.budget.has_waiters() {
            return;
        }
        evicted.extend(entries.remove(block));
        while entries.bytes + size > self.capacity
            && let Some(body) = entries.evict()
        {
            evicted.push(body);
        }
        entries.bytes += size;
        entries.unread += if unread { size } else { 0 };
        entries.blocks.put(block, CachedBlock { body, unread });
        // Memory is freed outside the lock.
        drop(entries);
    }

    pub fn remove(&self, block: BlockKey) {
        // Memory is freed outside the lock.
        let removed = self.lock().remove(block);
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }
}

impl Reclaim for BlockCache {
    fn reclaim(&self, bytes: usize) -> usize {
        let mut evicted = Vec::new();
        let mut entries = self.lock();
        let before = entries.bytes;
        while before - entries.bytes < bytes
            && let Some(body) = entries.evict()
        {
            evicted.push(body);
        }
        let freed = before - entries.bytes;
        drop(entries);
        freed
    }
}

impl Entries {
    fn evict(&mut self) -> Option<Bytes> {
        let (block, entry) = self.blocks.pop_lru()?;
        self.subtract(block, &entry);
        Some(entry.body)
    }

    fn remove(&mut self, block: BlockKey) -> Option<Bytes> {
        let entry = self.blocks.pop(&block)?;
        self.subtract(block, &entry);
        Some(entry.body)
    }

    fn subtract(&mut self, block: BlockKey, entry: &CachedBlock) {
        self.bytes -= block.size as usize;
        self.unread -= if entry.unread { block.size as usize } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    const SIZE: u32 = 4 << 10;

    fn block(id: u64) -> BlockKey {
        BlockKey { slice: SliceId(id), index: 0, size: SIZE }
    }

    async fn insert(block_cache: &BlockCache, id: u64, unread: bool) {
        let reserved = block_cache.budget.reserve(SIZE as usize).await;
        block_cache.insert(
            block(id),
            with_reservation(vec![7; SIZE as usize].into(), reserved),
            unread,
        );
    }

    #[tokio::test]
    async fn the_least_recently_used_block_is_evicted_first() {
        let block_cache = BlockCache::new(3 * SIZE as usize, Budget::new(1 << 20));
        for id in 1..=3 {
            insert(&block_cache, id, false).await;
        }
        assert_eq!(block_cache.read(block(1), &(0..3)).unwrap(), [7, 7, 7][..]);
        insert(&block_cache, 4, false).await;
        assert_eq!(
            [1, 2, 3, 4].map(|id| block_cache.contains(block(id))),
            [true, false, true, true]
        );
    }

    #[tokio::test]
    async fn a_block_read_to_its_end_is_evicted_before_others() {
        let block_cache = BlockCache::new(3 * SIZE as usize, Budget::new(1 << 20));
        for id in 1..=3 {
            insert(&block_cache, id, false).await;
        }
        assert!(block_cache.read(block(3), &(1..SIZE)).is_some());
        insert(&block_cache, 4, false).await;
        assert_eq!(
            [1, 2, 3, 4].map(|id| block_cache.contains(block(id))),
            [true, true, false, true]
        );
    }

    #[tokio::test]
    async fn the_reservation_ends_with_the_last_bytes_of_the_block() {
        let budget = Budget::new(1 << 20);
        let block_cache = BlockCache::new(3 * SIZE as usize, budget.clone());
        insert(&block_cache, 1, false).await;
        let bytes = block_cache.read(block(1), &(10..20)).unwrap();
        block_cache.remove(block(1));
        assert_eq!(budget.used(), SIZE as usize);
        drop(bytes);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_waiter_for_memory_gets_that_of_cached_blocks() {
        let budget = Budget::new(3 * SIZE as usize);
        let block_cache = BlockCache::new(3 * SIZE as usize, budget.clone());
        for id in 1..=3 {
            insert(&block_cache, id, false).await;
        }
        let reserved = budget.reserve(2 * SIZE as usize).await;
        assert_eq!(reserved.bytes(), 2 * SIZE as usize);
        assert_eq!([1, 2, 3].map(|id| block_cache.contains(block(id))), [false, false, true]);
    }

    #[tokio::test]
    async fn no_block_is_cached_while_something_waits_for_memory() {
        let budget = Budget::new(SIZE as usize);
        let block_cache = BlockCache::new(SIZE as usize, budget.clone());
        let reserved = budget.reserve(SIZE as usize).await;
        let body = with_reservation(vec![7; SIZE as usize].into(), reserved);
        let mut waiter = Box::pin(budget.reserve(1));
        assert!(futures::poll!(&mut waiter).is_pending());
        block_cache.insert(block(1), body, false);
        assert!(futures::poll!(&mut waiter).is_ready());
    }

    #[tokio::test]
    async fn unread_blocks_are_counted() {
        let block_cache = BlockCache::new(2 * SIZE as usize, Budget::new(1 << 20));
        insert(&block_cache, 1, true).await;
        assert!(!block_cache.is_full_of_unread(SIZE as usize));
        insert(&block_cache, 2, true).await;
        assert!(block_cache.is_full_of_unread(SIZE as usize));
        assert!(block_cache.read(block(1), &(0..1)).is_some());
        assert!(!block_cache.is_full_of_unread(SIZE as usize));
        block_cache.remove(block(2));
        insert(&block_cache, 1, true).await;
        assert!(!block_cache.is_full_of_unread(SIZE as usize));
    }
}
