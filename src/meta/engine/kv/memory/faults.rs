//! Faults that tests inject into the commits of a memory store.

use std::collections::VecDeque;

use crate::sync::Mutex;

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It reports a conflict and changes nothing.
    Conflict,
    /// It takes effect, and its response is lost.
    LostApplied,
    /// It never arrives, and neither does a response.
    LostUnapplied,
}

/// The faults of the next commits, in order. A commit whose guards fail uses up its fault.
#[derive(Debug, Default)]
pub struct Faults(Mutex<FaultPlan>);

#[derive(Debug, Default)]
struct FaultPlan {
    queue: VecDeque<Fault>,
    /// Once set, whether the next commit without a queued fault conflicts.
    alternate: Option<bool>,
}

impl Faults {
    pub fn push(&self, fault: Fault) {
        self.plan(|plan| plan.queue.push_back(fault));
    }

    /// Makes one transaction of the engine conflict, however often it retries the store.
    pub fn conflict_once(&self) {
        for _ in 0..=super::super::transaction::FRESH_ATTEMPTS {
            self.push(Fault::Conflict);
        }
    }

    /// From now on, makes every other commit conflict for no reason.
    pub fn conflict_every_other(&self) {
        self.plan(|plan| plan.alternate = Some(true));
    }

    pub(super) fn next(&self) -> Option<Fault> {
        self.plan(|plan| {
            plan.queue.pop_front().or_else(|| {
                let conflicts = plan.alternate?;
                plan.alternate = Some(!conflicts);
                conflicts.then_some(Fault::Conflict)
            })
        })
    }

    fn plan<T>(&self, then: impl FnOnce(&mut FaultPlan) -> T) -> T {
        then(&mut self.0.lock())
    }
}
