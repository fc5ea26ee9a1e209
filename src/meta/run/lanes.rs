//! Lanes: striped in-process turns, so that the engine sees few conflicts.

use std::hash::{BuildHasher, Hash};

use tokio::sync::{Mutex, MutexGuard};

use crate::meta::{Ino, Name};

const STRIPES: usize = 1024;

/// What an operation wants to itself within this process.
#[derive(Debug, Clone, Hash)]
pub enum Lane {
    /// Nothing: it conflicts with others only by chance.
    Free,
    /// A node: its attr is going to be written.
    Node(Ino),
    /// One name: creations in one directory need not wait for each other.
    Name(Ino, Name),
    /// Two names, such as both ends of a rename.
    Names((Ino, Name), (Ino, Name)),
    /// The locks of a node: they have nothing to do with its attr.
    Locks(Ino),
}

pub struct Lanes {
    stripes: Vec<Mutex<()>>,
    hasher: std::hash::RandomState,
}

impl Lanes {
    pub fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            hasher: std::hash::RandomState::new(),
        }
    }

    /// Waits for the lane's turn. Stripes are taken in order, so two pairs never deadlock.
    pub async fn enter(
        &self,
        lane: Lane,
    ) -> (Option<MutexGuard<'_, ()>>, Option<MutexGuard<'_, ()>>) {
        match lane {
            Lane::Free => (None, None),
            Lane::Node(ino) => (Some(self.stripe(ino).lock().await), None),
            Lane::Locks(ino) => (Some(self.stripe((ino, "locks")).lock().await), None),
            Lane::Name(dir, name) => (Some(self.stripe((dir, name)).lock().await), None),
            Lane::Names(one, two) => {
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

    fn stripe(&self, of: impl Hash) -> &Mutex<()> {
        &self.stripes[self.index(of)]
    }

    fn index(&self, of: impl Hash) -> usize {
        usize::try_from(self.hasher.hash_one(of)).unwrap_or(usize::MAX) % STRIPES
    }
}
