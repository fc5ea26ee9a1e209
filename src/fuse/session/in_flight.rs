//! Limits the memory of requests in flight.
//!
//! The kernel sends requests without limit: one for each thread that waits, each write with its
//! data. Beyond the limit requests are received slowly instead of not at all: an interrupt is
//! delivered before any other request, so a process that waits for a hanging store can still be
//! killed.
//!
//! All sessions of a process share one limit, so that their total is bounded however many there
//! are. No session takes all of it, and one that has nothing in flight always receives: requests of
//! other sessions that hang forever never block it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::receive_buffer::SpareBuffers;

/// The memory of a request beside its own bytes: its task and its reply.
const REQUEST_OVERHEAD: usize = 4096;
/// How long receiving waits for memory before it takes one more request.
const SLOW_RECEIVE: Duration = Duration::from_millis(100);
/// Beyond this multiple of a limit nothing is received until memory is free.
const HARD_LIMIT: usize = 2;

/// The memory for requests of all sessions of a process.
pub struct RequestMemory {
    limit: usize,
    /// The limit of one session.
    share: usize,
    held: AtomicUsize,
    released: Notify,
    pub(super) spare: SpareBuffers,
}

/// The memory of the requests of one session.
pub struct InFlight {
    shared: Arc<RequestMemory>,
    held: AtomicUsize,
}

/// One request in flight. Dropping it releases its memory.
pub struct InFlightGuard {
    in_flight: Arc<InFlight>,
    bytes: usize,
}

impl RequestMemory {
    /// Requests in flight hold `limit` bytes, at most twice as much plus one request of each
    /// session. Half of `limit` is kept as empty buffers. One session may hold `share`.
    pub fn new(limit: usize, share: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            share: share.min(limit),
            held: AtomicUsize::new(0),
            released: Notify::new(),
            spare: SpareBuffers::new(limit / 2),
        })
    }
}

impl InFlight {
    pub fn of(shared: &Arc<RequestMemory>) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), held: AtomicUsize::new(0) })
    }

    pub fn memory(&self) -> &Arc<RequestMemory> {
        &self.shared
    }

    /// Counts a request that is not completed where it was received.
    pub fn add(self: &Arc<Self>, length: usize) -> InFlightGuard {
        let bytes = length + REQUEST_OVERHEAD;
        self.held.fetch_add(bytes, Ordering::SeqCst);
        self.shared.held.fetch_add(bytes, Ordering::SeqCst);
        InFlightGuard { in_flight: Arc::clone(self), bytes }
    }

    /// Whether there is memory for more requests.
    pub fn has_memory(&self) -> bool {
        self.is_within(1)
    }

    /// Waits for memory, but only briefly unless the hard limit is exceeded.
    pub async fn wait_for_memory(&self) {
        if self.has_memory() {
            return;
        }
        let _ = timeout(SLOW_RECEIVE, self.wait_until_within(1)).await;
        self.wait_until_within(HARD_LIMIT).await;
    }

    /// Whether the memory held is within this multiple of the limits.
    fn is_within(&self, times: usize) -> bool {
        let held = self.held.load(Ordering::SeqCst);
        let is_at_most = |held: usize, limit: usize| held <= limit.saturating_mul(times);
        held == 0
            || is_at_most(held, self.shared.share)
                && is_at_most(self.shared.held.load(Ordering::SeqCst), self.shared.limit)
    }

    async fn wait_until_within(&self, times: usize) {
        loop {
            let mut released = pin!(self.shared.released.notified());
            // Registered before checking, so that no notification is missed.
            released.as_mut().enable();
            if self.is_within(times) {
                return;
            }
            released.await;
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let Self { in_flight, bytes } = self;
        let own = in_flight.held.fetch_sub(*bytes, Ordering::SeqCst);
        let all = in_flight.shared.held.fetch_sub(*bytes, Ordering::SeqCst);
        if own > in_flight.shared.share || all > in_flight.shared.limit {
            in_flight.shared.released.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn has_memory(in_flight: &InFlight) -> bool {
        in_flight.wait_for_memory().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_continues_slowly_beyond_the_limit() {
        let in_flight = InFlight::of(&RequestMemory::new(10_000, 10_000));
        let _guard = in_flight.add(10_000);
        assert!(!has_memory(&in_flight));
        in_flight.wait_for_memory().await;
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_stops_beyond_the_hard_limit() {
        let in_flight = InFlight::of(&RequestMemory::new(10_000, 10_000));
        let guard = in_flight.add(20_001);
        assert!(timeout(Duration::from_hours(1), in_flight.wait_for_memory()).await.is_err());
        let waiting = Arc::clone(&in_flight);
        let receiver = tokio::spawn(async move { waiting.wait_for_memory().await });
        tokio::task::yield_now().await;
        drop(guard);
        receiver.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_session_is_limited_to_its_share() {
        let shared = RequestMemory::new(40_000, 10_000);
        let (busy, other) = (InFlight::of(&shared), InFlight::of(&shared));
        let _guard = busy.add(10_000);
        let _little = other.add(1);
        assert!(!has_memory(&busy));
        assert!(has_memory(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_with_nothing_in_flight_always_receives() {
        let shared = RequestMemory::new(10_000, 10_000);
        let (hanging, idle) = (InFlight::of(&shared), InFlight::of(&shared));
        let _guard = hanging.add(1 << 30);
        assert!(has_memory(&idle));
        let _one = idle.add(1);
        assert!(timeout(Duration::from_hours(1), idle.wait_for_memory()).await.is_err());
    }
}
