//! Turns: tasks of this process that rewrite the same directory do it one after the other.
//!
//! The link count and the times of a directory are one value that everyone who makes or removes
//! something in it rewrites. Without turns, one of many would win and the others would all have
//! worked in vain, again and again.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

const STRIPES: usize = 1024;

pub(super) struct Turns {
    stripes: Vec<Arc<Mutex<()>>>,
    hasher: RandomState,
}

/// The turn of one transaction, until it is dropped.
pub(super) struct Turn {
    /// Whether someone else's turn had to end first: what was read before it is old.
    pub waited: bool,
    held: Vec<OwnedMutexGuard<()>>,
}

impl Turns {
    pub fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    /// Waits for the turn of all keys. Stripes are taken in order, so nobody waits in a circle.
    pub async fn wait<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>) -> Turn {
        let stripes: BTreeSet<usize> = keys.map(|key| self.stripe(key)).collect();
        let mut turn = Turn { waited: false, held: Vec::with_capacity(stripes.len()) };
        for stripe in stripes {
            let stripe = &self.stripes[stripe];
            let held = if let Ok(held) = stripe.clone().try_lock_owned() {
                held
            } else {
                turn.waited = true;
                stripe.clone().lock_owned().await
            };
            turn.held.push(held);
        }
        turn
    }

    fn stripe(&self, key: &Vec<u8>) -> usize {
        usize::try_from(self.hasher.hash_one(key)).unwrap_or(usize::MAX) % STRIPES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_waits_for_the_first_and_knows_it() {
        let turns = Arc::new(Turns::new());
        let keys = [b"a".to_vec(), b"b".to_vec()];
        let first = turns.wait(keys.iter()).await;
        assert!(!first.waited);
        let second = {
            let (turns, keys) = (turns.clone(), keys.clone());
            tokio::spawn(async move { turns.wait(keys.iter().rev()).await.waited })
        };
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.expect("no panic"));
    }
}
