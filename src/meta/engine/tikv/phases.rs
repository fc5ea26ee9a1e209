//! One phase or two: whether commits ask to be done in one.
//!
//! If all keys of a commit lie in one region, the server can carry it out with the request that
//! brings them: no second timestamp, no second request. The library sees to it that a commit over
//! several regions takes two phases. A server may decline, though: an old one always does, and one
//! that has just become the leader does for a moment. The library cannot go on then, so the commit
//! is taken back and done again, and for a while all commits take two phases, which always works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a server that declined is not asked again.
const REST: Duration = Duration::from_secs(10);

pub(super) struct Phases {
    start: Instant,
    /// In milliseconds since the start: from when on one phase may be asked for.
    asks_from: AtomicU64,
}

impl Phases {
    pub fn new() -> Self {
        Self { start: Instant::now(), asks_from: AtomicU64::new(0) }
    }

    /// Whether to ask for one phase.
    pub fn one(&self) -> bool {
        self.now() >= self.asks_from.load(Ordering::Relaxed)
    }

    /// A server has declined.
    pub fn declined(&self) {
        let rest = u64::try_from(REST.as_millis()).unwrap_or(u64::MAX);
        self.asks_from.store(self.now().saturating_add(rest), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_declined_is_left_alone_for_a_while() {
        let phases = Phases::new();
        assert!(phases.one());
        phases.declined();
        assert!(!phases.one());
        phases.asks_from.store(phases.now(), Ordering::Relaxed);
        assert!(phases.one());
    }
}
