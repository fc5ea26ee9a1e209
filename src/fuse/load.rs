//! How much is in flight, and what happens when that is too much.
//!
//! The kernel asks without end: one request for each thread that waits, each write with its data.
//! Past the limit requests are received slowly instead of not at all: an interrupt comes before any
//! other request, so a process that waits for a store that hangs can still be killed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// The memory of a request beside its own bytes: its task, its reply.
const EACH: usize = 4096;
/// How long receiving waits for room before it takes one more request.
const PATIENCE: Duration = Duration::from_millis(100);
/// Past this many times the limit nothing is received until there is room.
const HARD: usize = 4;

pub struct Load {
    limit: usize,
    held: AtomicUsize,
    lighter: Notify,
}

/// One request in flight.
pub struct Burden {
    load: Arc<Load>,
    bytes: usize,
}

impl Load {
    /// Requests in flight may hold about this many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), lighter: Notify::new() })
    }

    /// Counts a request that does not end where it was received.
    pub fn add(self: &Arc<Self>, length: usize) -> Burden {
        let bytes = length + EACH;
        self.held.fetch_add(bytes, Ordering::SeqCst);
        Burden { load: Arc::clone(self), bytes }
    }

    /// Waits for room, but not for long unless it is really too much.
    pub async fn room(&self) {
        if self.is_at_most(self.limit) {
            return;
        }
        let _ = timeout(PATIENCE, self.falls_to(self.limit)).await;
        self.falls_to(self.limit.saturating_mul(HARD)).await;
    }

    fn is_at_most(&self, most: usize) -> bool {
        self.held.load(Ordering::SeqCst) <= most
    }

    async fn falls_to(&self, most: usize) {
        loop {
            let mut lighter = pin!(self.lighter.notified());
            // From here on nothing is missed.
            lighter.as_mut().enable();
            if self.is_at_most(most) {
                return;
            }
            lighter.await;
        }
    }
}

impl Drop for Burden {
    fn drop(&mut self) {
        let before = self.load.held.fetch_sub(self.bytes, Ordering::SeqCst);
        if before > self.load.limit {
            self.load.lighter.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn receiving_goes_on_slowly_past_the_limit() {
        let load = Load::new(10_000);
        let _burden = load.add(10_000);
        assert!(load.room().now_or_never().is_none());
        load.room().await;
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_stops_when_it_is_really_too_much() {
        let load = Load::new(10_000);
        let burden = load.add(40_001);
        assert!(timeout(Duration::from_hours(1), load.room()).await.is_err());
        let waiting = Arc::clone(&load);
        let receiver = tokio::spawn(async move { waiting.room().await });
        tokio::task::yield_now().await;
        drop(burden);
        receiver.await.unwrap();
    }
}
