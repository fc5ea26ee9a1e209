//! Hot blocks: whole blocks kept in memory for a short while, so that the next small read of the
//! same block costs nothing.
//!
//! They are kept for convenience: when somebody waits for memory, they go.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;

use super::budget::{Budget, Reclaim};
use super::{BlockKey, Reserved};
use crate::sync::{Mutex, MutexGuard};

/// The blocks of one volume. Each carries its reservation, also beyond its time in here.
pub struct Hot {
    kept: Mutex<Kept>,
    /// Bytes.
    capacity: usize,
    budget: Arc<Budget>,
}

struct Kept {
    blocks: LruCache<BlockKey, Entry>,
    bytes: usize,
    unread: usize,
}

struct Entry {
    body: Bytes,
    /// Fetched ahead, and nobody came for it yet.
    unread: bool,
}

/// A body and the memory reserved for it. Both end with the last [`Bytes`] of it.
struct Accounted {
    body: Bytes,
    _reserved: Reserved,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// The body, with its reservation tied to it.
pub fn accounted(body: Bytes, reserved: Reserved) -> Bytes {
    Bytes::from_owner(Accounted { body, _reserved: reserved })
}

impl Hot {
    pub fn new(capacity: usize, budget: Arc<Budget>) -> Arc<Self> {
        let kept = Kept { blocks: LruCache::unbounded(), bytes: 0, unread: 0 };
        let hot = Arc::new(Self { kept: Mutex::new(kept), capacity, budget });
        let keeper: Arc<dyn Reclaim> = hot.clone();
        hot.budget.reclaim_from(Arc::downgrade(&keeper));
        hot
    }

    /// That part of the block, if it is here.
    pub fn part(&self, block: BlockKey, part: &Range<u32>) -> Option<Bytes> {
        let mut kept = self.lock();
        let entry = kept.blocks.get_mut(&block)?;
        let was_unread = std::mem::take(&mut entry.unread);
        let bytes = entry.body.slice(part.start as usize..part.end as usize);
        if was_unread {
            kept.unread -= block.size as usize;
        }
        // A stream is done with a block at its end and does not come back.
        if part.end == block.size {
            kept.blocks.demote(&block);
        }
        Some(bytes)
    }

    /// Bytes of all blocks that are kept.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        self.lock().blocks.contains(&block)
    }

    /// Whether so many bytes fetched ahead would only push out what was fetched ahead before.
    pub fn is_full_of_unread(&self, bytes: usize) -> bool {
        self.lock().unread + bytes > self.capacity
    }

    /// Keeps a block, unless memory is wanted elsewhere.
    pub fn keep(&self, block: BlockKey, body: Bytes, unread: bool) {
        let size = block.size as usize;
        let mut gone = Vec::new();
        let mut kept = self.lock();
        // Who waits has counted itself before it comes here to reclaim, so under this lock either
        // it is seen, or it sees the block.
        if size > self.capacity || self.budget.is_short() {
            return;
        }
        gone.extend(kept.remove(block));
        while kept.bytes + size > self.capacity
            && let Some(body) = kept.evict()
        {
            gone.push(body);
        }
        kept.bytes += size;
        kept.unread += if unread { size } else { 0 };
        kept.blocks.put(block, Entry { body, unread });
        // Memory is freed outside the lock.
        drop(kept);
    }

    pub fn forget(&self, block: BlockKey) {
        let gone = self.lock().remove(block);
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

impl Reclaim for Hot {
    fn reclaim(&self, bytes: usize) -> usize {
        let mut gone = Vec::new();
        let mut kept = self.lock();
        let before = kept.bytes;
        while before - kept.bytes < bytes
            && let Some(body) = kept.evict()
        {
            gone.push(body);
        }
        let given = before - kept.bytes;
        drop(kept);
        given
    }
}

impl Kept {
    fn evict(&mut self) -> Option<Bytes> {
        let (block, entry) = self.blocks.pop_lru()?;
        self.forgot(block, &entry);
        Some(entry.body)
    }

    fn remove(&mut self, block: BlockKey) -> Option<Bytes> {
        let entry = self.blocks.pop(&block)?;
        self.forgot(block, &entry);
        Some(entry.body)
    }

    fn forgot(&mut self, block: BlockKey, entry: &Entry) {
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

    async fn keep(hot: &Hot, id: u64, unread: bool) {
        let reserved = hot.budget.reserve(SIZE as usize).await;
        hot.keep(block(id), accounted(vec![7; SIZE as usize].into(), reserved), unread);
    }

    #[tokio::test]
    async fn the_block_that_was_not_used_for_longest_goes_first() {
        let hot = Hot::new(3 * SIZE as usize, Budget::new(1 << 20));
        for id in 1..=3 {
            keep(&hot, id, false).await;
        }
        assert_eq!(hot.part(block(1), &(0..3)).unwrap(), [7, 7, 7][..]);
        keep(&hot, 4, false).await;
        assert_eq!([1, 2, 3, 4].map(|id| hot.contains(block(id))), [true, false, true, true]);
    }

    #[tokio::test]
    async fn a_block_read_to_its_end_goes_before_others() {
        let hot = Hot::new(3 * SIZE as usize, Budget::new(1 << 20));
        for id in 1..=3 {
            keep(&hot, id, false).await;
        }
        assert!(hot.part(block(3), &(1..SIZE)).is_some());
        keep(&hot, 4, false).await;
        assert_eq!([1, 2, 3, 4].map(|id| hot.contains(block(id))), [true, true, false, true]);
    }

    #[tokio::test]
    async fn the_reservation_ends_with_the_last_piece_of_the_block() {
        let budget = Budget::new(1 << 20);
        let hot = Hot::new(3 * SIZE as usize, budget.clone());
        keep(&hot, 1, false).await;
        let piece = hot.part(block(1), &(10..20)).unwrap();
        hot.forget(block(1));
        assert_eq!(budget.used(), SIZE as usize);
        drop(piece);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn who_waits_for_memory_gets_that_of_hot_blocks() {
        let budget = Budget::new(3 * SIZE as usize);
        let hot = Hot::new(3 * SIZE as usize, budget.clone());
        for id in 1..=3 {
            keep(&hot, id, false).await;
        }
        let reserved = budget.reserve(2 * SIZE as usize).await;
        assert_eq!(reserved.bytes(), 2 * SIZE as usize);
        assert_eq!([1, 2, 3].map(|id| hot.contains(block(id))), [false, false, true]);
    }

    #[tokio::test]
    async fn nothing_is_kept_while_somebody_waits() {
        let budget = Budget::new(SIZE as usize);
        let hot = Hot::new(SIZE as usize, budget.clone());
        let reserved = budget.reserve(SIZE as usize).await;
        let body = accounted(vec![7; SIZE as usize].into(), reserved);
        let mut waiter = Box::pin(budget.reserve(1));
        assert!(futures::poll!(&mut waiter).is_pending());
        hot.keep(block(1), body, false);
        assert!(futures::poll!(&mut waiter).is_ready());
    }

    #[tokio::test]
    async fn what_nobody_came_for_yet_is_counted() {
        let hot = Hot::new(2 * SIZE as usize, Budget::new(1 << 20));
        keep(&hot, 1, true).await;
        assert!(!hot.is_full_of_unread(SIZE as usize));
        keep(&hot, 2, true).await;
        assert!(hot.is_full_of_unread(SIZE as usize));
        assert!(hot.part(block(1), &(0..1)).is_some());
        assert!(!hot.is_full_of_unread(SIZE as usize));
        hot.forget(block(2));
        keep(&hot, 1, true).await;
        assert!(!hot.is_full_of_unread(SIZE as usize));
    }
}
