//! Interrupts: which requests are in flight, and which of their callers were interrupted.
//!
//! The kernel sends an INTERRUPT after the request it names, but the request may be with a task
//! that has not started. Such an early interrupt is kept for the request. Numbers of requests are
//! never reused, so an interrupt for a request that was completed already does no harm.

use std::collections::{HashMap, VecDeque};

use tokio_util::sync::CancellationToken;

use crate::sync::Mutex;

/// The most early interrupts to keep. Only a request that is still with its receiver can have one,
/// so older ones are obsolete.
const EARLY_MAX: usize = 64;

#[derive(Default)]
pub struct Interrupts(Mutex<Table>);

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, CancellationToken>,
    early: VecDeque<Early>,
}

/// An interrupt that came before its request was registered.
struct Early {
    target: u64,
    /// The number of the INTERRUPT itself.
    unique: u64,
}

impl Interrupts {
    /// Registers a request. The token is cancelled when its caller is interrupted, which may
    /// already be the case.
    pub fn enter(&self, unique: u64) -> CancellationToken {
        let token = CancellationToken::new();
        let mut table = self.0.lock();
        if let Some(index) = table.early.iter().position(|early| early.target == unique) {
            table.early.remove(index);
            token.cancel();
        }
        table.waiting.insert(unique, token.clone());
        token
    }

    /// Removes a request that was completed.
    pub fn leave(&self, unique: u64) {
        self.0.lock().waiting.remove(&unique);
    }

    /// Handles an INTERRUPT (`unique`) for a request (`target`). Returns the number of an early one
    /// that it evicts: reply EAGAIN to that, and the kernel sends it again if it must.
    pub fn interrupt(&self, unique: u64, target: u64) -> Option<u64> {
        let mut table = self.0.lock();
        if let Some(token) = table.waiting.get(&target) {
            let token = token.clone();
            drop(table);
            // Wakes the waiting task, which must not find the table locked.
            token.cancel();
            return None;
        }
        table.early.push_back(Early { target, unique });
        if table.early.len() > EARLY_MAX {
            table.early.pop_front().map(|old| old.unique)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reaches_the_request_that_it_names() {
        let interrupts = Interrupts::default();
        let (one, two) = (interrupts.enter(2), interrupts.enter(4));
        assert_eq!(interrupts.interrupt(5, 4), None);
        assert!(!one.is_cancelled());
        assert!(two.is_cancelled());
    }

    #[test]
    fn an_early_interrupt_is_kept_for_its_request() {
        let interrupts = Interrupts::default();
        assert_eq!(interrupts.interrupt(5, 4), None);
        assert!(interrupts.enter(4).is_cancelled());
        assert!(!interrupts.enter(6).is_cancelled());
    }

    #[test]
    fn an_evicted_early_interrupt_is_to_be_sent_again() {
        let interrupts = Interrupts::default();
        for n in 0..EARLY_MAX as u64 {
            assert_eq!(interrupts.interrupt(2 * n + 1, 2 * n), None);
        }
        assert_eq!(interrupts.interrupt(1001, 1000), Some(1));
        assert!(!interrupts.enter(0).is_cancelled());
        assert!(interrupts.enter(1000).is_cancelled());
    }

    #[test]
    fn an_interrupt_for_a_completed_request_is_eventually_evicted() {
        let interrupts = Interrupts::default();
        interrupts.enter(4);
        interrupts.leave(4);
        assert_eq!(interrupts.interrupt(5, 4), None);
        for n in 100..100 + EARLY_MAX as u64 {
            interrupts.interrupt(2 * n + 1, 2 * n);
        }
        let table = interrupts.0.lock();
        assert!(table.early.iter().all(|early| early.target != 4));
    }
}
