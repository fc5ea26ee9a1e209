//! Blocks fetched before somebody asks for them.
//!
//! Two kinds: blocks ahead of a stream, which the reader asks for and which start at once or not at
//! all; and *followers*, whole blocks of which a part was read, which may be of use later and take
//! turns.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::flight::Boarding;
use super::read::Purpose;
use super::{BlockKey, Store};
use crate::sync::Mutex;

/// Blocks that follow a read of a part of them. What does not fit is forgotten.
pub struct Followers {
    waiting: Mutex<HashSet<BlockKey>>,
    limit: usize,
    turns: Semaphore,
}

impl Followers {
    pub fn new(at_once: usize) -> Self {
        let at_once = at_once.min(Semaphore::MAX_PERMITS);
        // JuiceFS lets as many wait.
        let limit = if at_once == 0 { 0 } else { at_once.saturating_mul(4).max(10) };
        Self { waiting: Mutex::default(), limit, turns: Semaphore::new(at_once) }
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
    /// Starts to fetch a block that will be read soon, if there is room for it. Never waits. Answers
    /// whether the block is here or on its way; if not, memory is short and fewer blocks should be
    /// asked for ahead.
    pub fn prefetch(self: &Arc<Self>, block: BlockKey) -> bool {
        self.is_near(block) || self.fetch_ahead(block)
    }

    /// Has a whole block fetched after a part of it was, when its turn comes.
    pub(super) fn follow(&self, block: BlockKey) {
        let Some(store) = self.me.upgrade() else { return };
        if self.is_near(block) || !self.followers.add(block) {
            return;
        }
        self.runtime.spawn(async move {
            // Never closed, so an error cannot be.
            let _turn = store.followers.turns.acquire().await;
            if !store.is_near(block)
                && store.fetch_ahead(block)
                && let Some(flight) = store.flights.join(block)
            {
                // Whoever reads the block will meet the error, if it is one.
                drop(flight.land().await);
            }
            store.followers.remove(block);
        });
    }

    /// Whether the block can be read without the bucket, or soon will.
    fn is_near(&self, block: BlockKey) -> bool {
        self.hot.contains(block)
            || self.flights.contains(block)
            || self.cache.as_ref().is_some_and(|cache| cache.contains(block))
    }

    /// Never waits for memory, and leaves a quarter of it to those who do.
    fn fetch_ahead(&self, block: BlockKey) -> bool {
        let size = block.size as usize;
        if self.hot.is_full_of_unread(size) {
            return false;
        }
        let spare = self.budget.capacity() / 4;
        let Some(reserved) = self.budget.try_reserve_sparing(size, spare) else { return false };
        if let Boarding::Started(_, duty) = self.flights.board(block, || None) {
            self.depart(duty, reserved, Purpose::Ahead);
        }
        true
    }
}
