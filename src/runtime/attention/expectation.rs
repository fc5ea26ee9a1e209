//! Expectation: how soon there will be something to do, by how soon there was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is expected first.
const FIRST: Duration = Duration::from_micros(25);

/// Grows while waits are short, shrinks with each that is longer than the limit, down to nothing:
/// whoever serves an idle mount, or waits for a server far away, never looks at all.
#[derive(Debug)]
pub struct Expectation {
    limit: Duration,
    nanoseconds: AtomicU64,
}

impl Expectation {
    pub fn new(limit: Duration) -> Self {
        Self { limit, nanoseconds: AtomicU64::new(0) }
    }

    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// A wait is over.
    pub fn learn(&self, waited: Duration) {
        let expected = self.get();
        let next = if waited <= expected {
            return;
        } else if waited <= self.limit {
            (expected * 2).max(FIRST).min(self.limit)
        } else if expected > FIRST {
            expected / 2
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

    fn micros(expectation: &Expectation) -> u128 {
        expectation.get().as_micros()
    }

    #[test]
    fn nothing_is_expected_until_a_wait_was_short() {
        let expectation = Expectation::new(LIMIT);
        assert_eq!(micros(&expectation), 0);
        expectation.learn(LIMIT * 2);
        assert_eq!(micros(&expectation), 0);
        expectation.learn(LIMIT);
        assert_eq!(micros(&expectation), 25);
    }

    #[test]
    fn it_grows_to_the_limit_with_waits_that_were_longer_than_expected_and_shorter_than_that() {
        let expectation = Expectation::new(LIMIT);
        let after = [25, 50, 100, 100].map(|expected| {
            expectation.learn(LIMIT);
            (micros(&expectation), expected)
        });
        assert!(after.iter().all(|(is, expected)| is == expected), "{after:?}");
    }

    #[test]
    fn what_came_as_expected_changes_nothing() {
        let expectation = Expectation::new(LIMIT);
        expectation.learn(LIMIT);
        expectation.learn(LIMIT);
        expectation.learn(Duration::from_micros(3));
        assert_eq!(micros(&expectation), 50);
    }

    #[test]
    fn long_waits_shrink_it_to_nothing() {
        let expectation = Expectation::new(LIMIT);
        for _ in 0..3 {
            expectation.learn(LIMIT);
        }
        let after = [50, 25, 0, 0].map(|expected| {
            expectation.learn(LIMIT * 5);
            (micros(&expectation), expected)
        });
        assert!(after.iter().all(|(is, expected)| is == expected), "{after:?}");
    }

    #[test]
    fn a_limit_below_the_first_expectation_is_kept() {
        let expectation = Expectation::new(Duration::from_micros(10));
        expectation.learn(Duration::from_micros(10));
        assert_eq!(micros(&expectation), 10);
    }
}
