//! Locks on directories, for stores whose commits only check the keys that they write.
//!
//! A shared lock on a directory is a write lock on one of its slots, and an exclusive lock is a
//! write lock on all of them. Two transactions that use the same slot conflict, so a task takes a
//! slot of its own before its transaction begins and keeps it until the transaction ends. Processes
//! do not know each other's slots: each starts to look for a free one at a random number, and a
//! collision costs a retry.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rand::RngExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::local_order::{LocalOrder, OrderGuard};
use crate::meta::engine::Change;
use crate::meta::engine::kv::keys::StoreKey;

/// Directories are distinguished by a hash; two in the same stripe share their slots.
const STRIPES: usize = 256;

/// What keeps transactions of this process from conflicting with each other.
pub(in crate::meta::engine::kv) struct DirLocks {
    pub(super) slots: SharedSlots,
    order: LocalOrder,
}

impl DirLocks {
    /// Returns `None` for a store without slots, whose commits check everything they read.
    pub fn new(slots: u8) -> Option<Self> {
        (slots > 0).then(|| Self { slots: SharedSlots::new(slots), order: LocalOrder::new() })
    }

    /// Waits until no other task of this process rewrites a directory that the changes touch.
    pub(super) async fn lock_touched(&self, changes: &[Change]) -> OrderGuard {
        let touched: Vec<Vec<u8>> = changes
            .iter()
            .filter_map(|change| match change {
                Change::TouchDir { ino, .. } => Some(StoreKey::Attr(*ino).encode()),
                _ => None,
            })
            .collect();
        self.order.lock(touched.iter()).await
    }
}

/// The slots of all directories, and which of them tasks of this process use.
pub(super) struct SharedSlots {
    count: u32,
    /// Where this process starts to look for a free slot.
    first: u32,
    stripes: Vec<Arc<Stripe>>,
    hasher: RandomState,
}

struct Stripe {
    free: Arc<Semaphore>,
    /// One bit for each slot.
    taken: AtomicU32,
}

/// A slot that no other task of this process uses until it is dropped.
pub(super) struct SharedSlot {
    pub number: u8,
    stripe: Arc<Stripe>,
    _permit: OwnedSemaphorePermit,
}

impl SharedSlots {
    /// `count` is at most 32.
    fn new(count: u8) -> Self {
        let count = u32::from(count).min(u32::BITS);
        let stripe =
            || Stripe { free: Arc::new(Semaphore::new(count as usize)), taken: AtomicU32::new(0) };
        Self {
            count,
            first: rand::rng().random_range(0..count.max(1)),
            stripes: (0..STRIPES).map(|_| Arc::new(stripe())).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Waits for a free slot of the directory.
    pub async fn take(&self, dir: &[u8]) -> Option<SharedSlot> {
        let stripe = self.stripe(dir);
        let permit = stripe.free.clone().acquire_owned().await.ok()?;
        self.claim(stripe, permit)
    }

    /// Returns a slot of the directory if one is free. A task that has a slot already must not
    /// wait for another.
    pub fn try_take(&self, dir: &[u8]) -> Option<SharedSlot> {
        let stripe = self.stripe(dir);
        let permit = stripe.free.clone().try_acquire_owned().ok()?;
        self.claim(stripe, permit)
    }

    /// Returns the number of a slot that another task may be using.
    pub fn random(&self) -> u8 {
        u8::try_from(rand::rng().random_range(0..self.count.max(1))).unwrap_or(0)
    }

    fn claim(&self, stripe: &Arc<Stripe>, permit: OwnedSemaphorePermit) -> Option<SharedSlot> {
        // There are as many permits as slots, so this finds a free one.
        for step in (0..self.count).cycle().take(2 * self.count as usize) {
            let number = (self.first + step) % self.count;
            let bit = 1 << number;
            if stripe.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                let number = u8::try_from(number).ok()?;
                return Some(SharedSlot { number, stripe: stripe.clone(), _permit: permit });
            }
        }
        None
    }

    fn stripe(&self, dir: &[u8]) -> &Arc<Stripe> {
        let hash = usize::try_from(self.hasher.hash_one(dir)).unwrap_or(usize::MAX);
        &self.stripes[hash % STRIPES]
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        // Before the permit: the task that gets the permit must find the slot free.
        self.stripe.taken.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[tokio::test]
    async fn every_slot_is_taken_once() {
        let slots = SharedSlots::new(32);
        let mut taken = Vec::new();
        for _ in 0..32 {
            taken.push(slots.take(b"dir").await.expect("a slot"));
        }
        let numbers: HashSet<u8> = taken.iter().map(|slot| slot.number).collect();
        assert_eq!(numbers.len(), 32);
        assert!(slots.try_take(b"dir").is_none());
    }

    #[tokio::test]
    async fn a_dropped_slot_is_free_again() {
        let slots = SharedSlots::new(1);
        drop(slots.take(b"dir").await);
        assert!(slots.try_take(b"dir").is_some());
    }
}
