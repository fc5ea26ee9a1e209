//! One-phase commits: whether to ask for them.
//!
//! If all keys of a commit lie in one region, the server can commit with the request that writes
//! them: no second timestamp, no second request. The library uses two phases for a commit over
//! several regions. A server may decline, though: an old one always does, and one that has just
//! become the leader does for a moment. The library cannot continue then, so the commit is rolled
//! back and repeated, and for a while all commits take two phases, which always works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long two phases are used after a server declined.
const PAUSE: Duration = Duration::from_secs(10);

pub(super) struct OnePhaseCommit {
    start: Instant,
    /// From when on one phase is asked for, in milliseconds since `start`.
    enabled_from: AtomicU64,
}

impl OnePhaseCommit {
    pub fn new() -> Self {
        Self { start: Instant::now(), enabled_from: AtomicU64::new(0) }
    }

    /// Returns whether to ask for one phase.
    pub fn is_enabled(&self) -> bool {
        self.now() >= self.enabled_from.load(Ordering::Relaxed)
    }

    /// Uses two phases for a while, after a server has declined one.
    pub fn pause(&self) {
        let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
        self.enabled_from.store(self.now().saturating_add(pause), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_declined_is_not_asked_for_a_while() {
        let one_phase = OnePhaseCommit::new();
        assert!(one_phase.is_enabled());
        one_phase.pause();
        assert!(!one_phase.is_enabled());
        one_phase.enabled_from.store(one_phase.now(), Ordering::Relaxed);
        assert!(one_phase.is_enabled());
    }
}
