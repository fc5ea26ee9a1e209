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

    fn enter(&mut self, state: State, now: Instant) -> Option<State> {
        (self.state, self.counting_since, self.done, self.failed) = (state, now, 0, 0);
        Some(state)
    }
}
