//! Faults on demand: what commits of a memory store answer instead of the truth.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It answers a conflict and changes nothing.
    Conflict,
    /// It takes effect, and its answer is lost.
    LostApplied,
    /// It never arrives, and its answer is lost.
    LostUnapplied,
}

/// Faults waiting for the next commits, in order. A commit whose guards fail uses up its fault.
#[derive(Debug, Default)]
pub struct Faults(Mutex<VecDeque<Fault>>);

impl Faults {
    pub fn push(&self, fault: Fault) {
        self.queue(|queue| queue.push_back(fault));
    }

    /// Lets one transaction of the engine conflict, however often it tries the store.
    pub fn conflict_once(&self) {
        for _ in 0..=super::super::txn::FRESH_ATTEMPTS {
            self.push(Fault::Conflict);
        }
    }

    pub(super) fn next(&self) -> Option<Fault> {
        self.queue(VecDeque::pop_front)
    }

    fn queue<T>(&self, then: impl FnOnce(&mut VecDeque<Fault>) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
