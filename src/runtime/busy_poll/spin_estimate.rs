//! Estimates how long an idle thread should spin, from how long its recent waits took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first estimate after a short wait.
const FIRST: Duration = Duration::from_micros(25);

/// How long to spin. Grows while waits are short and shrinks with each wait above the limit, down to
/// zero: a thread that serves an idle mount or waits for a remote server never spins.
#[derive(Debug)]
pub struct SpinEstimate {
    limit: Duration,
    nanoseconds: AtomicU64,
}

impl SpinEstimate {
    pub fn new(limit: Duration) -> Self {
        Self { limit, nanoseconds: AtomicU64::new(0) }
    }

    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// Updates the estimate after a wait.
    pub fn record(&self, waited: Duration) {
        let estimate = self.get();
        let next = if waited <= estimate {
            return;
        } else if waited <= self.limit {
            (estimate * 2).max(FIRST).min(self.limit)
        } else if estimate > FIRST {
            estimate / 2
        } else {
            Duration::ZERO
        };
        let nanoseconds = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.store(nanoseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);

    fn micros(estimate: &SpinEstimate) -> u128 {
        estimate.get().as_micros()
    }

    #[test]
    fn the_estimate_is_zero_until_a_wait_was_short() {
        let estimate = SpinEstimate::new(LIMIT);
        assert_eq!(micros(&estimate), 0);
        estimate.record(LIMIT * 2);
        assert_eq!(micros(&estimate), 0);
        estimate.record(LIMIT);
        assert_eq!(micros(&estimate), 25);
    }

    #[test]
    fn waits_between_the_estimate_and_the_limit_double_it_up_to_the_limit() {
        let estimate = SpinEstimate::new(LIMIT);
        let after = [25, 50, 100, 100].map(|expected| {
            estimate.record(LIMIT);
            (micros(&estimate), expected)
        });
        assert!(after.iter().all(|(is, expected)| is == expected), "{after:?}");
    }

    #[test]
    fn a_wait_within_the_estimate_changes_nothing() {
        let estimate = SpinEstimate::new(LIMIT);
        estimate.record(LIMIT);
        estimate.record(LIMIT);
        estimate.record(Duration::from_micros(3));
        assert_eq!(micros(&estimate), 50);
    }

    #[test]
    fn long_waits_shrink_the_estimate_to_zero() {
        let estimate = SpinEstimate::new(LIMIT);
        for _ in 0..3 {
            estimate.record(LIMIT);
        }
        let after = [50, 25, 0, 0].map(|expected| {
            estimate.record(LIMIT * 5);
            (micros(&estimate), expected)
        });
        assert!(after.iter().all(|(is, expected)| is == expected), "{after:?}");
    }

    #[test]
    fn a_limit_below_the_first_estimate_is_respected() {
        let estimate = SpinEstimate::new(Duration::from_micros(10));
        estimate.record(Duration::from_micros(10));
        assert_eq!(micros(&estimate), 10);
    }
}
