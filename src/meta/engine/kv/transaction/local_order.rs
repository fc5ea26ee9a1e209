//! Tasks of this process that rewrite the same directory do it one after the other.
//!
//! The link count and the times of a directory are part of one value, which everyone who creates or
//! removes something in it rewrites. Without an order, one of many would win and all others would
//! have to start over, again and again.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

const STRIPES: usize = 1024;

pub(super) struct LocalOrder {
    stripes: Vec<Arc<Mutex<()>>>,
    hasher: RandomState,
}

/// The locks of one transaction, until it is dropped.
pub(super) struct OrderGuard {
    /// Whether another task held one of the locks: values read before are out of date.
    pub waited: bool,
    held: Vec<OwnedMutexGuard<()>>,
}

impl LocalOrder {
    pub fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    /// Locks all keys. Stripes are locked in order, so that tasks cannot deadlock.
    pub async fn lock<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>) -> OrderGuard {
        let stripes: BTreeSet<usize> = keys.map(|key| self.stripe(key)).collect();
        let mut guard = OrderGuard { waited: false, held: Vec::with_capacity(stripes.len()) };
        for stripe in stripes {
            let stripe = &self.stripes[stripe];
            let held = if let Ok(held) = stripe.clone().try_lock_owned() {
                held
            } else {
                guard.waited = true;
                stripe.clone().lock_owned().await
            };
            guard.held.push(held);
        }
        guard
    }

    fn stripe(&self, key: &Vec<u8>) -> usize {
        usize::try_from(self.hasher.hash_one(key)).unwrap_or(usize::MAX) % STRIPES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_task_waits_for_the_first_and_reports_it() {
        let order = Arc::new(LocalOrder::new());
        let keys = [b"a".to_vec(), b"b".to_vec()];
        let first = order.lock(keys.iter()).await;
        assert!(!first.waited);
        let second = {
            let (order, keys) = (order.clone(), keys.clone());
            tokio::spawn(async move { order.lock(keys.iter().rev()).await.waited })
        };
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.expect("no panic"));
    }
}
