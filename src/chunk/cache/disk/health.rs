//! The health of a disk, derived from the outcomes of its operations.
//!
//! The states are those of JuiceFS. Pure: the caller passes the time and the outcomes.

use std::time::{Duration, Instant};

/// Failures within [`MINUTE`] that make a disk unstable.
const MAX_FAILURES: u32 = 3;
/// Operations within [`MINUTE`], all successful, that make it normal again.
const MIN_SUCCESSES: u32 = 60;
/// An unstable disk that does not recover for this long is down.
const DOWN_AFTER: Duration = Duration::from_mins(30);
/// Concurrent operations on an unstable disk.
const MAX_BUSY: u32 = 10;
const MINUTE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    Normal,
    /// Used by few operations at a time, and probed.
    Unstable,
    /// No longer used.
    Down,
}

#[derive(Debug)]
pub struct Health {
    state: HealthState,
    /// When the disk became unstable.
    since: Instant,
    /// The start of the current minute.
    counting_since: Instant,
    done: u32,
    failed: u32,
    busy: u32,
}

impl Health {
    pub fn new(now: Instant) -> Self {
        let state = HealthState::Normal;
        Self { state, since: now, counting_since: now, done: 0, failed: 0, busy: 0 }
    }

    /// Asks to begin an operation. If it returns true, [`Health::end`] must follow.
    pub fn begin(&mut self) -> bool {
        let granted = match self.state {
            HealthState::Normal => true,
            HealthState::Unstable => self.busy < MAX_BUSY,
            HealthState::Down => false,
        };
        self.busy += u32::from(granted);
        granted
    }

    pub fn end(&mut self) {
        self.busy = self.busy.saturating_sub(1);
    }

    /// Records the outcome of an operation. Returns the new state if it changed.
    pub fn record(&mut self, failed: bool, now: Instant) -> Option<HealthState> {
        let change = self.tick(now);
        self.done += 1;
        self.failed += u32::from(failed);
        if self.state == HealthState::Normal && self.failed >= MAX_FAILURES {
            self.since = now;
            return Some(self.enter(HealthState::Unstable, now));
        }
        change
    }

    /// Ends the current minute if it is over. Returns the new state if it changed.
    pub fn tick(&mut self, now: Instant) -> Option<HealthState> {
        if now.duration_since(self.counting_since) < MINUTE {
            return None;
        }
        let clean = self.done >= MIN_SUCCESSES && self.failed == 0;
        (self.counting_since, self.done, self.failed) = (now, 0, 0);
        if self.state != HealthState::Unstable {
            return None;
        }
        if clean {
            return Some(self.enter(HealthState::Normal, now));
        }
        if now.duration_since(self.since) >= DOWN_AFTER {
            return Some(self.enter(HealthState::Down, now));
        }
        None
    }

    #[cfg(test)]
    pub fn mark_down(&mut self) -> HealthState {
        let now = self.counting_since;
        self.enter(HealthState::Down, now)
    }

    fn enter(&mut self, state: HealthState, now: Instant) -> HealthState {
        (self.state, self.counting_since, self.done, self.failed) = (state, now, 0, 0);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the health of a disk that has just become unstable.
    fn unstable(now: Instant) -> Health {
        let mut health = Health::new(now);
        assert_eq!(health.record(true, now), None);
        assert_eq!(health.record(true, now), None);
        assert_eq!(health.record(true, now), Some(HealthState::Unstable));
        health
    }

    #[test]
    fn failures_far_apart_keep_a_disk_normal() {
        let start = Instant::now();
        let mut health = Health::new(start);
        for minute in 0..10 {
            let now = start + minute * MINUTE;
            assert_eq!(health.record(true, now), None);
            assert_eq!(health.record(true, now + SECOND), None);
        }
    }

    #[test]
    fn an_unstable_disk_runs_few_operations_at_once() {
        let mut health = unstable(Instant::now());
        let granted = (0..20).filter(|_| health.begin()).count();
        assert_eq!(granted, 10);
        health.end();
        assert!(health.begin());
    }

    #[test]
    fn a_minute_of_enough_successes_makes_it_normal() {
        let start = Instant::now();
        let mut health = unstable(start);
        for _ in 0..59 {
            health.record(false, start + SECOND);
        }
        assert_eq!(health.tick(start + MINUTE), None, "one too few");
        for _ in 0..60 {
            health.record(false, start + MINUTE + SECOND);
        }
        assert_eq!(health.tick(start + 2 * MINUTE), Some(HealthState::Normal));
        assert!((0..20).all(|_| health.begin()));
    }

    #[test]
    fn a_disk_that_fails_every_minute_for_half_an_hour_is_down() {
        let start = Instant::now();
        let mut health = unstable(start);
        for minute in 0..30 {
            let now = start + minute * MINUTE;
            assert_eq!(health.tick(now), None, "minute {minute}");
            for _ in 0..100 {
                health.record(false, now);
            }
            health.record(true, now);
        }
        assert_eq!(health.tick(start + 30 * MINUTE), Some(HealthState::Down));
        assert!(!health.begin());
        assert_eq!(health.tick(start + 90 * MINUTE), None, "down for good");
    }
}
