//! Whether a disk can be trusted, from what its operations have come to.
//!
//! The states are those of JuiceFS. Knows no clock and no disk: it is told both.

use std::time::{Duration, Instant};

/// Failures within [`MINUTE`] that make a disk unstable.
const MAX_FAILURES: u32 = 3;
/// Operations without a failure within [`MINUTE`] that make it normal again.
const MIN_SUCCESSES: u32 = 60;
/// An unstable disk that does not recover for that long is given up.
const GIVE_UP: Duration = Duration::from_mins(30);
/// Operations at the same time on an unstable disk.
const MAX_BUSY: u32 = 10;
const MINUTE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Normal,
    /// Used with care, and tried with probes.
    Unstable,
    /// Not used any more.
    Down,
}

#[derive(Debug)]
pub struct Health {
    state: State,
    /// When the disk became unstable.
    since: Instant,
    /// The minute that is being counted.
    counting_since: Instant,
    done: u32,
    failed: u32,
    busy: u32,
}

impl Health {
    pub fn new(now: Instant) -> Self {
        let state = State::Normal;
        Self { state, since: now, counting_since: now, done: 0, failed: 0, busy: 0 }
    }

    /// Asks to begin an operation; if granted, [`Health::end`] must follow.
    pub fn begin(&mut self) -> bool {
        let granted = match self.state {
            State::Normal => true,
            State::Unstable => self.busy < MAX_BUSY,
            State::Down => false,
        };
        self.busy += u32::from(granted);
        granted
    }

    pub fn end(&mut self) {
        self.busy = self.busy.saturating_sub(1);
    }

    /// Takes note of how an operation went; answers the new state if that changes it.
    pub fn note(&mut self, failed: bool, now: Instant) -> Option<State> {
        let change = self.tick(now);
        self.done += 1;
        self.failed += u32::from(failed);
        if self.state == State::Normal && self.failed >= MAX_FAILURES {
            self.since = now;
            return self.enter(State::Unstable, now);
        }
        change
    }

    /// Ends the minute if it is over; answers the new state if that changes it.
    pub fn tick(&mut self, now: Instant) -> Option<State> {
        if now.duration_since(self.counting_since) < MINUTE {
            return None;
        }
        let clean = self.done >= MIN_SUCCESSES && self.failed == 0;
        (self.counting_since, self.done, self.failed) = (now, 0, 0);
        if self.state != State::Unstable {
            return None;
        }
        if clean {
            return self.enter(State::Normal, now);
        }
        if now.duration_since(self.since) >= GIVE_UP {
            return self.enter(State::Down, now);
        }
        None
    }

    #[cfg(test)]
    pub fn give_up(&mut self) -> Option<State> {
        let now = self.counting_since;
        self.enter(State::Down, now)
    }

    fn enter(&mut self, state: State, now: Instant) -> Option<State> {
        (self.state, self.counting_since, self.done, self.failed) = (state, now, 0, 0);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A disk that has just failed too often.
    fn unstable(now: Instant) -> Health {
        let mut health = Health::new(now);
        assert_eq!(health.note(true, now), None);
        assert_eq!(health.note(true, now), None);
        assert_eq!(health.note(true, now), Some(State::Unstable));
        health
    }

    #[test]
    fn failures_far_apart_do_no_harm() {
        let start = Instant::now();
        let mut health = Health::new(start);
        for minute in 0..10 {
            let now = start + minute * MINUTE;
            assert_eq!(health.note(true, now), None);
            assert_eq!(health.note(true, now + SECOND), None);
        }
    }

    #[test]
    fn an_unstable_disk_is_used_by_few_at_once() {
        let mut health = unstable(Instant::now());
        let granted = (0..20).filter(|_| health.begin()).count();
        assert_eq!(granted, 10);
        health.end();
        assert!(health.begin());
    }

    #[test]
    fn a_clean_minute_with_enough_done_makes_it_normal() {
        let start = Instant::now();
        let mut health = unstable(start);
        for _ in 0..59 {
            health.note(false, start + SECOND);
        }
        assert_eq!(health.tick(start + MINUTE), None, "one too few");
        for _ in 0..60 {
            health.note(false, start + MINUTE + SECOND);
        }
        assert_eq!(health.tick(start + 2 * MINUTE), Some(State::Normal));
        assert!((0..20).all(|_| health.begin()));
    }

    #[test]
    fn one_failure_spoils_the_minute_and_half_an_hour_of_them_the_disk() {
        let start = Instant::now();
        let mut health = unstable(start);
        for minute in 0..30 {
            let now = start + minute * MINUTE;
            assert_eq!(health.tick(now), None, "minute {minute}");
            for _ in 0..100 {
                health.note(false, now);
            }
            health.note(true, now);
        }
        assert_eq!(health.tick(start + 30 * MINUTE), Some(State::Down));
        assert!(!health.begin());
        assert_eq!(health.tick(start + 90 * MINUTE), None, "down for good");
    }
}
