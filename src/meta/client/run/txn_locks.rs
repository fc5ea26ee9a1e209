//! Locks that order the operations of this process, so that the engine sees few conflicts.

use std::hash::{BuildHasher, Hash};

use tokio::sync::{Mutex, MutexGuard};

use crate::meta::TxnLock;

const STRIPES: usize = 1024;

/// The locks of one client.
pub struct TxnLocks {
    stripes: Vec<Mutex<()>>,
    hasher: std::hash::RandomState,
}

impl TxnLocks {
    pub fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            hasher: std::hash::RandomState::new(),
        }
    }

    /// Waits for a lock. Two stripes are locked in order, so that two pairs never deadlock.
    pub async fn acquire(
        &self,
        lock: TxnLock,
    ) -> (Option<MutexGuard<'_, ()>>, Option<MutexGuard<'_, ()>>) {
        match lock {
            TxnLock::None => (None, None),
            TxnLock::Node(ino) => (Some(self.stripe(ino).lock().await), None),
            TxnLock::FileLocks(ino) => (Some(self.stripe((ino, "locks")).lock().await), None),
            TxnLock::Name(dir, name) => (Some(self.stripe((dir, name)).lock().await), None),
            TxnLock::Names(one, two) => {
                let (low, high) = {
                    let (a, b) = (self.index(one), self.index(two));
                    (a.min(b), a.max(b))
                };
                let first = self.stripes[low].lock().await;
                let second = if low == high { None } else { Some(self.stripes[high].lock().await) };
                (Some(first), second)
            }
        }
    }

    fn stripe(&self, key: impl Hash) -> &Mutex<()> {
        &self.stripes[self.index(key)]
    }

    fn index(&self, key: impl Hash) -> usize {
        usize::try_from(self.hasher.hash_one(key)).unwrap_or(usize::MAX) % STRIPES
    }
}
