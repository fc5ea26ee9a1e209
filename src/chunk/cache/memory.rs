//! Blocks kept in memory, for nodes without a disk to spare: the same rules, no files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::disk::now;
use super::index::Entry;
use super::ledger::{AreaId, Goal, Holding, Ledger};
use super::options::Eviction;
use super::usage::Counters;
use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// Entries that are swept in one go, between which others get at the books.
const SWEEP: usize = 10_000;

pub struct Memory {
    capacity: u64,
    items: u64,
    eviction: Eviction,
    kept: Mutex<Kept>,
}

struct Kept {
    ledger: Ledger,
    bodies: HashMap<(AreaId, BlockKey), Bytes>,
    counters: HashMap<AreaId, Arc<Counters>>,
}

impl Memory {
    pub fn new(capacity: u64, items: u64, eviction: Eviction) -> Self {
        let kept = Kept {
            ledger: Ledger::new(eviction, 0),
            bodies: HashMap::new(),
            counters: HashMap::new(),
        };
        let items = if items == 0 { u64::MAX } else { items };
        Self { capacity, items, eviction, kept: Mutex::new(kept) }
    }

    pub fn add(&self, area: AreaId, share: Option<u64>, counters: Arc<Counters>) {
        let mut kept = self.lock();
        kept.ledger.open(area, share, true);
        kept.counters.insert(area, counters);
    }

    pub fn set_share(&self, area: AreaId, share: Option<u64>) {
        self.lock().ledger.set_share(area, share);
    }

    pub fn close(&self, area: AreaId) {
        let mut kept = self.lock();
        kept.ledger.close(area);
        kept.counters.remove(&area);
        kept.bodies.retain(|(of, _), _| *of != area);
    }

    pub fn read(&self, area: AreaId, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let mut kept = self.lock();
        kept.ledger.touch(area, block, now())?;
        let body = kept.bodies.get(&(area, block))?;
        Some(body.slice(range.start as usize..range.end as usize))
    }

    pub fn contains(&self, area: AreaId, block: BlockKey) -> bool {
        self.lock().ledger.find(area, block).is_some()
    }

    pub fn put(&self, area: AreaId, block: BlockKey, body: &Bytes, counters: &Counters) {
        if self.contains(area, block) {
            return;
        }
        let size = u64::from(block.size);
        let is_full = |ledger: &Ledger| {
            ledger.bytes() + size > self.capacity || ledger.blocks() >= self.items
        };
        let no_room = self.eviction == Eviction::None && is_full(&self.lock().ledger);
        if size > self.capacity || no_room {
            counters.dropped();
            return;
        }
        // A copy of its own: what is handed in may be a small part of something large.
        let begun = Instant::now();
        let body = Bytes::copy_from_slice(body);
        counters.written(body.len(), begun.elapsed());
        let mut kept = self.lock();
        if is_full(&kept.ledger) {
            // Before, so that never more is held than allowed.
            let goal = Goal { bytes: self.capacity - size, blocks: self.items.saturating_sub(1) };
            for (of, victim) in kept.ledger.evict(goal, self.capacity, now(), usize::MAX) {
                kept.discard(of, victim);
            }
        }
        if is_full(&kept.ledger) || kept.ledger.find(area, block).is_some() {
            return;
        }
        kept.ledger.insert(area, Entry { block, atime: now(), staged: false });
        kept.bodies.insert((area, block), body);
    }

    pub fn remove(&self, area: AreaId, block: BlockKey) {
        let mut kept = self.lock();
        kept.ledger.remove(area, block);
        kept.bodies.remove(&(area, block));
    }

    /// Drops blocks that were not used since.
    pub fn expire(&self, since: u32) {
        let areas: Vec<AreaId> = self.lock().counters.keys().copied().collect();
        for area in areas {
            let mut from = self.lock().ledger.len(area);
            while from > 0 {
                let mut kept = self.lock();
                let old = |entry: Entry, _| entry.atime < since;
                let (next, dropped) = kept.ledger.sweep(area, from, SWEEP, old);
                from = next;
                for block in dropped {
                    kept.discard(area, block);
                }
            }
        }
    }

    pub fn holding(&self, area: AreaId) -> Holding {
        self.lock().ledger.holding(area)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

impl Kept {
    fn discard(&mut self, area: AreaId, block: BlockKey) {
        self.bodies.remove(&(area, block));
        if let Some(counters) = self.counters.get(&area) {
            counters.evicted(1);
        }
    }
}
