//! Faults on demand: what commits of a memory store answer instead of the truth.

use std::collections::VecDeque;

use crate::sync::Mutex;

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
pub struct Faults(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    queue: VecDeque<Fault>,
    /// Once set, whether the next commit without a fault of its own is to conflict.
    stutter: Option<bool>,
}

impl Faults {
    pub fn push(&self, fault: Fault) {
        self.plan(|plan| plan.queue.push_back(fault));
    }

    /// Lets one transaction of the engine conflict, however often it tries the store.
    pub fn conflict_once(&self) {
        for _ in 0..=super::super::txn::FRESH_ATTEMPTS {
            self.push(Fault::Conflict);
        }
    }

    /// From now on every other commit conflicts for no reason.
    pub fn stutter(&self) {
        self.plan(|plan| plan.stutter = Some(true));
    }

    pub(super) fn next(&self) -> Option<Fault> {
        self.plan(|plan| {
            plan.queue.pop_front().or_else(|| {
                let conflicts = plan.stutter?;
                plan.stutter = Some(!conflicts);
                conflicts.then_some(Fault::Conflict)
            })
        })
    }

    fn plan<T>(&self, then: impl FnOnce(&mut Plan) -> T) -> T {
        then(&mut self.0.lock())
    }
}
