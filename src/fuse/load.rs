//! How much is in flight, and what happens when that is too much.
//!
//! The kernel asks without end: one request for each thread that waits, each write with its data.
//! Past the limit the receivers read slowly instead of not at all: an interrupt comes before any
//! other request, so a process that waits for a store that hangs can still be killed.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The memory of a request beside its own bytes: its task, its reply.
const EACH: usize = 4096;
/// How long a receiver waits for room before it takes one more request.
const PATIENCE: Duration = Duration::from_millis(100);
/// Past this many times the limit nothing is read until there is room.
const HARD: usize = 4;

pub struct Load {
    limit: usize,
    held: Mutex<usize>,
    lighter: Condvar,
}

/// One request in flight.
pub struct Burden {
    load: Arc<Load>,
    bytes: usize,
}

impl Load {
    /// Requests in flight may hold about this many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: Mutex::new(0), lighter: Condvar::new() })
    }

    /// Counts a request that does not end on the thread that received it.
    pub fn add(self: &Arc<Self>, length: usize) -> Burden {
        let bytes = length + EACH;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        Burden { load: Arc::clone(self), bytes }
    }

    /// Waits for room, but not for long unless it is really too much.
    pub fn wait_for_room(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if *held <= self.limit {
            return;
        }
        let held = self.lighter.wait_timeout_while(held, PATIENCE, |held| *held > self.limit);
        let (held, _) = held.unwrap_or_else(PoisonError::into_inner);
        let hard = self.limit.saturating_mul(HARD);
        drop(self.lighter.wait_while(held, |held| *held > hard));
    }
}

impl Drop for Burden {
    fn drop(&mut self) {
        let mut held = self.load.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *held;
        *held = before.saturating_sub(self.bytes);
        if before > self.load.limit {
            self.load.lighter.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_receiver_goes_on_slowly_past_the_limit() {
        let load = Load::new(10_000);
        let _burden = load.add(10_000);
        load.wait_for_room();
    }

    #[test]
    fn a_receiver_stops_when_it_is_really_too_much() {
        let load = Load::new(10_000);
        let burden = load.add(40_001);
        let (read, reading) = channel();
        let waiting = Arc::clone(&load);
        let receiver = thread::spawn(move || {
            waiting.wait_for_room();
            read.send(()).unwrap();
        });
        assert!(reading.recv_timeout(2 * PATIENCE).is_err());
        drop(burden);
        reading.recv_timeout(Duration::from_mins(1)).unwrap();
        receiver.join().unwrap();
    }
}
