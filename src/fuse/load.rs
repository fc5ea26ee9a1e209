//! How much is in flight, and what happens when that is too much.
//!
//! The kernel asks without end: one request for each thread that waits, each write with its data.
//! Past the limit requests are received slowly instead of not at all: an interrupt comes before any
//! other request, so a process that waits for a store that hangs can still be killed.
//!
//! All sessions of a process share one limit, so that what they hold is known however many there
//! are. No session takes all of it, and one that has nothing in flight always receives: what others
//! hold, perhaps for ever, never keeps it from being served.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::buffer::Spare;

/// The memory of a request beside its own bytes: its task, its reply.
const EACH: usize = 4096;
/// How long receiving waits for room before it takes one more request.
const PATIENCE: Duration = Duration::from_millis(100);
/// Past this many times a limit nothing is received until there is room.
const HARD: usize = 2;

/// What requests of all sessions of a process may hold.
pub struct RequestMemory {
    limit: usize,
    /// Of one session.
    share: usize,
    held: AtomicUsize,
    lighter: Notify,
    pub(super) spare: Spare,
}

/// What requests of one session hold.
pub struct Load {
    whole: Arc<RequestMemory>,
    held: AtomicUsize,
}

/// One request in flight.
pub struct Burden {
    load: Arc<Load>,
    bytes: usize,
}

impl RequestMemory {
    /// Requests in flight hold `limit` bytes, at most twice as many and one request of each session; as
    /// many are kept as empty buffers. One session has `share` of it.
    pub fn new(limit: usize, share: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            share: share.min(limit),
            held: AtomicUsize::new(0),
            lighter: Notify::new(),
            spare: Spare::new(limit / 2),
        })
    }
}

impl Load {
    pub fn of(whole: &Arc<RequestMemory>) -> Arc<Self> {
        Arc::new(Self { whole: Arc::clone(whole), held: AtomicUsize::new(0) })
    }

    pub fn memory(&self) -> &Arc<RequestMemory> {
        &self.whole
    }

    /// Counts a request that does not end where it was received.
    pub fn add(self: &Arc<Self>, length: usize) -> Burden {
        let bytes = length + EACH;
        self.held.fetch_add(bytes, Ordering::SeqCst);
        self.whole.held.fetch_add(bytes, Ordering::SeqCst);
        Burden { load: Arc::clone(self), bytes }
    }

    /// Whether there is room for more.
    pub fn has_room(&self) -> bool {
        self.is_within(1)
    }

    /// Waits for room, but not for long unless it is really too much.
    pub async fn room(&self) {
        if self.has_room() {
            return;
        }
        let _ = timeout(PATIENCE, self.falls_within(1)).await;
        self.falls_within(HARD).await;
    }

    /// Whether no more is held than so many times what may be.
    fn is_within(&self, times: usize) -> bool {
        let held = self.held.load(Ordering::SeqCst);
        let is_at_most = |held: usize, limit: usize| held <= limit.saturating_mul(times);
        held == 0
            || is_at_most(held, self.whole.share)
                && is_at_most(self.whole.held.load(Ordering::SeqCst), self.whole.limit)
    }

    async fn falls_within(&self, times: usize) {
        loop {
            let mut lighter = pin!(self.whole.lighter.notified());
            // From here on nothing is missed.
            lighter.as_mut().enable();
            if self.is_within(times) {
                return;
            }
            lighter.await;
        }
    }
}

impl Drop for Burden {
    fn drop(&mut self) {
        let Self { load, bytes } = self;
        let own = load.held.fetch_sub(*bytes, Ordering::SeqCst);
        let all = load.whole.held.fetch_sub(*bytes, Ordering::SeqCst);
        if own > load.whole.share || all > load.whole.limit {
            load.whole.lighter.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn has_room(load: &Load) -> bool {
        load.room().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_goes_on_slowly_past_the_limit() {
        let load = Load::of(&RequestMemory::new(10_000, 10_000));
        let _burden = load.add(10_000);
        assert!(!has_room(&load));
        load.room().await;
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_stops_when_it_is_really_too_much() {
        let load = Load::of(&RequestMemory::new(10_000, 10_000));
        let burden = load.add(20_001);
        assert!(timeout(Duration::from_hours(1), load.room()).await.is_err());
        let waiting = Arc::clone(&load);
        let receiver = tokio::spawn(async move { waiting.room().await });
        tokio::task::yield_now().await;
        drop(burden);
        receiver.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_session_has_its_share_and_others_the_rest() {
        let whole = RequestMemory::new(40_000, 10_000);
        let (busy, other) = (Load::of(&whole), Load::of(&whole));
        let _burden = busy.add(10_000);
        let _little = other.add(1);
        assert!(!has_room(&busy));
        assert!(has_room(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_with_nothing_in_flight_receives_whatever_others_hold() {
        let whole = RequestMemory::new(10_000, 10_000);
        let (hanging, idle) = (Load::of(&whole), Load::of(&whole));
        let _burden = hanging.add(1 << 30);
        assert!(has_room(&idle));
        let _one = idle.add(1);
        assert!(timeout(Duration::from_hours(1), idle.room()).await.is_err());
    }
}
