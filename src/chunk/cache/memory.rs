//! The cache in memory, for nodes without a cache disk: the same rules, no files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::accounting::{AccountId, Accounting, IndexEntry, VolumeUsage};
use super::disk::now;
use super::eviction::{Eviction, EvictionGoal, Victim};
use super::usage::Counters;
use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// Entries swept in one step. Others can lock the accounting between two steps.
const SWEEP: usize = 10_000;

pub struct Memory {
    capacity: u64,
    items: u64,
    eviction: Eviction,
    blocks: Mutex<Blocks>,
}

struct Blocks {
    accounting: Accounting,
    bodies: HashMap<(AccountId, BlockKey), Bytes>,
    counters: HashMap<AccountId, Arc<Counters>>,
}

impl Memory {
    pub fn new(capacity: u64, items: u64, eviction: Eviction) -> Self {
        let blocks = Blocks {
            accounting: Accounting::new(eviction, 0),
            bodies: HashMap::new(),
            counters: HashMap::new(),
        };
        let items = if items == 0 { u64::MAX } else { items };
        Self { capacity, items, eviction, blocks: Mutex::new(blocks) }
    }

    pub fn add(&self, id: AccountId, share: Option<u64>, counters: Arc<Counters>) {
        let mut blocks = self.lock();
        blocks.accounting.open(id, share, true);
        blocks.counters.insert(id, counters);
    }

    pub fn set_share(&self, id: AccountId, share: Option<u64>) {
        self.lock().accounting.set_share(id, share);
    }

    pub fn close(&self, id: AccountId) {
        let mut blocks = self.lock();
        blocks.accounting.close(id);
        blocks.counters.remove(&id);
        blocks.bodies.retain(|(of, _), _| *of != id);
    }

    pub fn read(&self, id: AccountId, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let mut blocks = self.lock();
        blocks.accounting.touch(id, block, now())?;
        let body = blocks.bodies.get(&(id, block))?;
        Some(body.slice(range.start as usize..range.end as usize))
    }

    pub fn contains(&self, id: AccountId, block: BlockKey) -> bool {
        self.lock().accounting.find(id, block).is_some()
    }

    pub fn put(&self, id: AccountId, block: BlockKey, body: &Bytes, counters: &Counters) {
        if self.contains(id, block) {
            return;
        }
        let size = u64::from(block.size);
        let is_full = |accounting: &Accounting| {
            accounting.bytes() + size > self.capacity || accounting.blocks() >= self.items
        };
        let no_room = self.eviction == Eviction::None && is_full(&self.lock().accounting);
        if size > self.capacity || no_room {
            counters.dropped();
            return;
        }
        // A copy, because the given bytes may be a small part of a large buffer.
        let begun = Instant::now();
        let body = Bytes::copy_from_slice(body);
        counters.written(body.len(), begun.elapsed());
        let mut blocks = self.lock();
        if is_full(&blocks.accounting) {
            // Before the insertion, so that the capacity is never exceeded.
            let goal =
                EvictionGoal { bytes: self.capacity - size, blocks: self.items.saturating_sub(1) };
            for Victim { account, block } in
                blocks.accounting.evict(goal, self.capacity, now(), usize::MAX)
            {
                blocks.evicted(account, block);
            }
        }
        if is_full(&blocks.accounting) || blocks.accounting.find(id, block).is_some() {
            return;
        }
        blocks.accounting.insert(id, IndexEntry { block, atime: now(), staged: false });
        blocks.bodies.insert((id, block), body);
    }

    pub fn remove(&self, id: AccountId, block: BlockKey) {
        let mut blocks = self.lock();
        blocks.accounting.remove(id, block);
        blocks.bodies.remove(&(id, block));
    }

    /// Drops blocks that were not used since the given time.
    pub fn expire(&self, since: u32) {
        let volume_dirs: Vec<AccountId> = self.lock().counters.keys().copied().collect();
        for id in volume_dirs {
            let mut from = self.lock().accounting.len(id);
            while from > 0 {
                let mut blocks = self.lock();
                let old = |entry: IndexEntry, _| entry.atime < since;
                let (next, dropped) = blocks.accounting.sweep(id, from, SWEEP, old);
                from = next;
                for block in dropped {
                    blocks.evicted(id, block);
                }
            }
        }
    }

    pub fn usage(&self, id: AccountId) -> VolumeUsage {
        self.lock().accounting.usage(id)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock()
    }
}

impl Blocks {
    fn evicted(&mut self, id: AccountId, block: BlockKey) {
        self.bodies.remove(&(id, block));
        if let Some(counters) = self.counters.get(&id) {
            counters.evicted(1);
        }
    }
}
