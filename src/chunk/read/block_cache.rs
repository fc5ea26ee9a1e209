//! Whole blocks kept in memory for a short while, so that the next small read of the same block
//! needs no request.
//!
//! They are kept only while memory is plentiful: when something waits for memory of the budget,
//! blocks are evicted, those that were read first. Prefetching takes the memory of blocks that were
//! read to their end. The cache on disk is [`Cache`](crate::chunk::Cache).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;
use tokio::time::Instant;

use super::stream::{IDLE, StreamState};
use crate::chunk::{BlockKey, Budget, Reclaim, Reserved};
use crate::sync::{Mutex, MutexGuard};

/// The blocks of one volume. Each body carries its memory reservation, which lasts until the last
/// reader drops the bytes, even after eviction.
pub struct BlockCache {
    entries: Mutex<Entries>,
    /// The most bytes of blocks that were read, and the most of blocks that were not. The budget
    /// bounds both together.
    capacity: usize,
    budget: Arc<Budget>,
}

/// Room for a block that is being prefetched. Dropping it gives the room back.
pub struct UnreadRoom {
    cache: Arc<BlockCache>,
    bytes: usize,
}

struct Entries {
    /// Blocks of which something was read; those read to their end first.
    read: LruCache<BlockKey, ReadBlock>,
    /// Blocks that were prefetched and not read yet, the oldest first.
    unread: LruCache<BlockKey, UnreadBlock>,
    read_bytes: usize,
    unread_bytes: usize,
    /// Bytes of blocks that are being prefetched.
    expected_bytes: usize,
}

struct ReadBlock {
    body: Bytes,
    is_finished: bool,
    last_read: Instant,
}

struct UnreadBlock {
    body: Bytes,
    /// The stream it was prefetched for; without one, nobody is known to want it soon.
    stream: Option<Arc<StreamState>>,
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
        let entries = Entries {
            read: LruCache::unbounded(),
            unread: LruCache::unbounded(),
            read_bytes: 0,
            unread_bytes: 0,
            expected_bytes: 0,
        };
        let cache = Arc::new(Self { entries: Mutex::new(entries), capacity, budget });
        let reclaimer: Arc<dyn Reclaim> = cache.clone();
        cache.budget.reclaim_from(Arc::downgrade(&reclaimer));
        cache
    }

    /// Returns bytes `range` of a block, if it is cached.
    pub fn read(&self, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let mut entries = self.lock();
        if let Some(UnreadBlock { body, .. }) = entries.unread.pop(&block) {
            entries.unread_bytes -= block.size as usize;
            entries.put_read(block, body);
        }
        let entry = entries.read.get_mut(&block)?;
        let bytes = entry.body.slice(range.start as usize..range.end as usize);
        entry.last_read = Instant::now();
        // A stream that has read a block to its end does not come back to it.
        entry.is_finished |= range.end == block.size;
        if entry.is_finished {
            entries.read.demote(&block);
        }
        Some(bytes)
    }

    /// Returns the bytes of all cached blocks.
    pub fn bytes(&self) -> usize {
        self.lock().bytes()
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        let entries = self.lock();
        entries.read.contains(&block) || entries.unread.contains(&block)
    }

    /// Returns room for a block that is to be prefetched, unless there are too many that were
    /// prefetched before and are needed.
    pub fn room_for_unread(self: &Arc<Self>, bytes: usize) -> Option<UnreadRoom> {
        let take = || {
            let mut entries = self.lock();
            if entries.unread_bytes + entries.expected_bytes + bytes > self.capacity {
                return None;
            }
            entries.expected_bytes += bytes;
            Some(UnreadRoom { cache: Arc::clone(self), bytes })
        };
        take().or_else(|| {
            self.evict_by(bytes, Entries::evict_idle);
            take()
        })
    }

    /// Caches a block that was just fetched for a reader, unless something waits for memory.
    pub fn insert(&self, block: BlockKey, body: Bytes) {
        self.insert_with(block, |entries| entries.put_read(block, body));
    }

    /// Caches a block that was prefetched, unless something waits for memory.
    pub fn insert_unread(&self, block: BlockKey, body: Bytes, stream: Option<Arc<StreamState>>) {
        self.insert_with(block, |entries| {
            entries.unread_bytes += block.size as usize;
            entries.unread.put(block, UnreadBlock { body, stream });
        });
    }

    fn insert_with(&self, block: BlockKey, put: impl FnOnce(&mut Entries)) {
        let mut evicted = Vec::new();
        let mut entries = self.lock();
        // A waiter registers itself before it reclaims memory here, so under this lock either this
        // sees the waiter, or the waiter sees the block.
        if block.size as usize > self.capacity || self.budget.has_waiters() {
            return;
        }
        evicted.extend(entries.remove(block));
        put(&mut entries);
        while entries.read_bytes > self.capacity
            && let Some(body) = entries.evict_read()
        {
            evicted.push(body);
        }
        // Memory is freed outside the lock.
        drop(entries);
    }

    pub fn remove(&self, block: BlockKey) {
        // Memory is freed outside the lock.
        let removed = self.lock().remove(block);
        drop(removed);
    }

    /// Evicts blocks until `bytes` are freed or `evict` finds no more. Returns the bytes freed.
    fn evict_by(
        &self,
        bytes: usize,
        mut evict: impl FnMut(&mut Entries) -> Option<Bytes>,
    ) -> usize {
        let mut evicted = Vec::new();
        let mut entries = self.lock();
        let before = entries.bytes();
        while before - entries.bytes() < bytes
            && let Some(body) = evict(&mut entries)
        {
            evicted.push(body);
        }
        let freed = before - entries.bytes();
        // Memory is freed outside the lock.
        drop(entries);
        freed
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }
}

impl Reclaim for BlockCache {
    fn reclaim(&self, bytes: usize) -> usize {
        self.evict_by(bytes, Entries::evict)
    }

    fn reclaim_unneeded(&self, bytes: usize) -> usize {
        self.evict_by(bytes, Entries::evict_unneeded)
    }
}

impl ReadBlock {
    fn new(body: Bytes) -> Self {
        Self { body, is_finished: false, last_read: Instant::now() }
    }
}

impl Entries {
    fn bytes(&self) -> usize {
        self.read_bytes + self.unread_bytes
    }

    fn put_read(&mut self, block: BlockKey, body: Bytes) {
        self.read_bytes += block.size as usize;
        self.read.put(block, ReadBlock::new(body));
    }

    /// Evicts a block that was read, or else the oldest one that was not.
    fn evict(&mut self) -> Option<Bytes> {
        self.evict_read().or_else(|| {
            let (block, _) = self.unread.peek_lru()?;
            self.remove(*block)
        })
    }

    fn evict_read(&mut self) -> Option<Bytes> {
        let (block, _) = self.read.peek_lru()?;
        self.remove(*block)
    }

    /// Evicts a block that was read to its end or not for a while, or else one that was prefetched
    /// for a stream that is idle.
    fn evict_unneeded(&mut self) -> Option<Bytes> {
        // If the least recently used one is needed, so are the others: finished ones come first.
        let is_unneeded = |one: &ReadBlock| one.is_finished || one.last_read.elapsed() >= IDLE;
        if self.read.peek_lru().is_some_and(|(_, one)| is_unneeded(one)) {
            return self.evict_read();
        }
        self.evict_idle()
    }

    /// Evicts a block that was prefetched for a stream that is idle.
    fn evict_idle(&mut self) -> Option<Bytes> {
        let is_idle = |one: &UnreadBlock| one.stream.as_ref().is_none_or(|of| of.is_idle());
        let (block, _) = self.unread.iter().rev().find(|(_, one)| is_idle(one))?;
        self.remove(*block)
    }

    fn remove(&mut self, block: BlockKey) -> Option<Bytes> {
        let size = block.size as usize;
        if let Some(one) = self.unread.pop(&block) {
            self.unread_bytes -= size;
            return Some(one.body);
        }
        let one = self.read.pop(&block)?;
        self.read_bytes -= size;
        Some(one.body)
    }
}

impl Drop for UnreadRoom {
    fn drop(&mut self) {
        self.cache.lock().expected_bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::{ReadStream, Streams};
    use super::*;
    use crate::slice::SliceId;

    const SIZE: u32 = 4 << 10;

    fn block(id: u64) -> BlockKey {
        BlockKey { slice: SliceId(id), index: 0, size: SIZE }
    }

    async fn body(block_cache: &BlockCache) -> Bytes {
        let reserved = block_cache.budget.reserve(SIZE as usize).await;
        with_reservation(vec![7; SIZE as usize].into(), reserved)
    }

    async fn insert(block_cache: &BlockCache, id: u64) {
        block_cache.insert(block(id), body(block_cache).await);
    }

    async fn insert_for(block_cache: &BlockCache, id: u64, stream: &ReadStream) {
        let stream = Some(Arc::clone(stream.state()));
        block_cache.insert_unread(block(id), body(block_cache).await, stream);
    }

    #[tokio::test]
    async fn the_least_recently_used_block_is_evicted_first() {
        let block_cache = BlockCache::new(3 * SIZE as usize, Budget::new(1 << 20));
        for id in 1..=3 {
            insert(&block_cache, id).await;
        }
        assert_eq!(block_cache.read(block(1), &(0..3)).unwrap(), [7, 7, 7][..]);
        insert(&block_cache, 4).await;
        assert_eq!(
            [1, 2, 3, 4].map(|id| block_cache.contains(block(id))),
            [true, false, true, true]
        );
    }

    #[tokio::test]
    async fn a_block_read_to_its_end_is_evicted_before_others() {
        let block_cache = BlockCache::new(3 * SIZE as usize, Budget::new(1 << 20));
        for id in 1..=3 {
            insert(&block_cache, id).await;
        }
        assert!(block_cache.read(block(3), &(1..SIZE)).is_some());
        insert(&block_cache, 4).await;
        assert_eq!(
            [1, 2, 3, 4].map(|id| block_cache.contains(block(id))),
            [true, true, false, true]
        );
    }

    #[tokio::test]
    async fn the_reservation_ends_with_the_last_bytes_of_the_block() {
        let budget = Budget::new(1 << 20);
        let block_cache = BlockCache::new(3 * SIZE as usize, budget.clone());
        insert(&block_cache, 1).await;
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
            insert(&block_cache, id).await;
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
        block_cache.insert(block(1), body);
        assert!(futures::poll!(&mut waiter).is_ready());
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_blocks_that_were_not_read() {
        let block_cache = BlockCache::new(2 * SIZE as usize, Budget::new(1 << 20));
        let has_room = || block_cache.room_for_unread(SIZE as usize).is_some();
        let stream = Streams::default().open();
        let expected = block_cache.room_for_unread(SIZE as usize);
        assert!(expected.is_some() && has_room());
        insert_for(&block_cache, 1, &stream).await;
        assert!(!has_room(), "one is cached, one is on its way");
        drop(expected);
        assert!(has_room());
        insert_for(&block_cache, 2, &stream).await;
        assert!(!has_room());
        assert!(block_cache.read(block(1), &(0..1)).is_some());
        assert!(has_room());
        insert_for(&block_cache, 3, &stream).await;
        assert!(!has_room());
        drop(stream);
        assert!(has_room(), "the stream has ended");
    }

    #[tokio::test]
    async fn blocks_that_were_not_read_evict_no_block_that_is_being_read() {
        let block_cache = BlockCache::new(2 * SIZE as usize, Budget::new(1 << 20));
        let stream = Streams::default().open();
        insert(&block_cache, 1).await;
        assert!(block_cache.read(block(1), &(0..1)).is_some());
        for id in 2..=3 {
            insert_for(&block_cache, id, &stream).await;
        }
        assert_eq!([1, 2, 3].map(|id| block_cache.contains(block(id))), [true; 3]);
    }

    #[tokio::test]
    async fn read_blocks_are_reclaimed_before_unread_ones() {
        let block_cache = BlockCache::new(2 * SIZE as usize, Budget::new(1 << 20));
        let stream = Streams::default().open();
        insert_for(&block_cache, 1, &stream).await;
        insert(&block_cache, 2).await;
        assert!(block_cache.read(block(2), &(0..1)).is_some());
        assert_eq!(block_cache.reclaim(SIZE as usize), SIZE as usize);
        assert_eq!([1, 2].map(|id| block_cache.contains(block(id))), [true, false]);
    }
}
