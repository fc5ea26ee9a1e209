//! Lock queues: the requests of this process that wait for a lock, and which of them may try next.
//!
//! Only the first request in an inode's queue polls the store, on behalf of all. Whenever the held
//! locks become known (by a release, by polling, by a granted lock), requests may try in the order
//! of arrival: every request that conflicts neither with a held lock nor with a request that may
//! already try. So a free exclusive lock wakes one writer, not all, and a request that can be
//! granted never waits for one that cannot: with locks that would be a deadlock, not fairness.
//!
//! Permission to try is no lock; the store decides. No mutex here is held across an await.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::Notify;

use crate::meta::op::locks::claim::{Claim, LockAttempt, LockFamily};
use crate::meta::{Ino, Sid};
use crate::sync::{Mutex, MutexGuard};

/// The first pause between two polls for a lock that another client holds. Locks are mostly held
/// for a few round trips, and this is about one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Each pause is longer by half, so that a released lock is noticed late by at most half the time
/// that the request has waited.
const GROWTH: (u32, u32) = (3, 2);
/// The longest pause: a hundred clients that wait for one lock cause a thousand reads a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The pause if all held locks belong to this session: their release is noticed at once. But if the
/// session was taken for dead, or is being handed over, others release its locks.
const OWN_PAUSE: Duration = Duration::from_secs(1);

/// A lock queue belongs to an inode and a lock family.
pub type QueueKey = (Ino, LockFamily);

/// All queues of this client. A queue exists only while it has requests.
#[derive(Default)]
pub struct LockQueues {
    queues: Mutex<HashMap<QueueKey, Queue>>,
    tickets: AtomicU64,
}

struct Queue {
    /// In the order of arrival. The first one polls.
    requests: VecDeque<WaitingRequest>,
    /// Whether other sessions held a lock when last seen.
    foreign: bool,
    pause: Duration,
}

struct WaitingRequest {
    ticket: u64,
    claim: Claim,
    /// The request may try, or is trying.
    may_try: bool,
    /// A lock was released after the attempt began, so the attempt may have been too early.
    retry: bool,
    wake: Arc<Notify>,
}

/// A request in a queue; dropping it leaves the queue.
pub struct QueuedRequest<'a> {
    queues: &'a LockQueues,
    at: QueueKey,
    ticket: u64,
    wake: Arc<Notify>,
}

enum Next {
    Try,
    /// Poll after this time, unless woken before.
    Poll(Duration),
    Wait,
}

impl LockQueues {
    pub fn join(&self, at: QueueKey, claim: Claim) -> QueuedRequest<'_> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let wake = Arc::new(Notify::new());
        let mut queues = self.lock();
        let queue = queues.entry(at).or_default();
        // A new request must not overtake a conflicting one that may already try.
        let may_try =
            !queue.requests.iter().any(|other| other.may_try && other.claim.conflicts_with(&claim));
        queue.requests.push_back(WaitingRequest {
            ticket,
            claim,
            may_try,
            retry: false,
            wake: Arc::clone(&wake),
        });
        QueuedRequest { queues: self, at, ticket, wake }
    }

    /// Records the outcome of an attempt. Must be called before the requester sees the outcome, so
    /// that other waiting requests may try before the requester's next step.
    pub fn record_attempt(&self, at: QueueKey, ticket: Option<u64>, tried: &LockAttempt, own: Sid) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&at) else { return };
        if tried.granted {
            queue.remove(ticket);
        } else if let Some(waiting) = queue.find(ticket) {
            waiting.may_try = std::mem::take(&mut waiting.retry);
        }
        queue.observe_held(&tried.held, own);
        queue.wake_compatible(&tried.held);
        if queue.requests.is_empty() {
            queues.remove(&at);
        }
    }

    /// The number of waiting requests, on all inodes.
    pub fn waiting(&self) -> usize {
        self.lock().values().map(|queue| queue.requests.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueKey, Queue>> {
        self.queues.lock()
    }
}

impl QueuedRequest<'_> {
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Waits until the request may try.
    pub async fn until_may_try(&self) {
        loop {
            match self.next() {
                Next::Try => return,
                Next::Wait => self.wake.notified().await,
                Next::Poll(pause) => {
                    if tokio::time::timeout(pause, self.wake.notified()).await.is_err() {
                        self.poll_now();
                    }
                }
            }
        }
    }

    fn next(&self) -> Next {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.at) else { return Next::Try };
        let is_first = queue.requests.front().is_some_and(|first| first.ticket == self.ticket);
        let pause = queue.next_pause();
        match queue.find(Some(self.ticket)) {
            Some(waiting) if !waiting.may_try => {
                if is_first {
                    Next::Poll(pause)
                } else {
                    Next::Wait
                }
            }
            Some(waiting) => {
                waiting.retry = false;
                Next::Try
            }
            None => Next::Try,
        }
    }

    /// The pause is over: the request may try without having been woken.
    fn poll_now(&self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.at) else { return };
        queue.pause = (queue.pause * GROWTH.0 / GROWTH.1).min(LONGEST_PAUSE);
        if let Some(waiting) = queue.find(Some(self.ticket)) {
            waiting.may_try = true;
        }
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.at) else { return };
        if queue.remove(Some(self.ticket)).is_some_and(|gone| gone.may_try) {
            // Its permission to try is unused. The held locks are not known here, so the next
            // requests try.
            queue.wake_compatible(&[]);
        }
        if queue.requests.is_empty() {
            queues.remove(&self.at);
        }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self { requests: VecDeque::new(), foreign: true, pause: FIRST_PAUSE }
    }
}

impl Queue {
    fn find(&mut self, ticket: Option<u64>) -> Option<&mut WaitingRequest> {
        self.requests.iter_mut().find(|waiting| Some(waiting.ticket) == ticket)
    }

    fn remove(&mut self, ticket: Option<u64>) -> Option<WaitingRequest> {
        let index = self.requests.iter().position(|waiting| Some(waiting.ticket) == ticket)?;
        let gone = self.requests.remove(index);
        if let Some(first) = self.requests.front().filter(|_| index == 0) {
            // This request polls from now on.
            first.wake.notify_one();
        }
        gone
    }

    fn wake_compatible(&mut self, held: &[Claim]) {
        let clash =
            |claims: &[Claim], one: &Claim| claims.iter().any(|claim| claim.conflicts_with(one));
        let mut taken = held.to_vec();
        taken.extend(self.requests.iter().filter(|other| other.may_try).map(|other| other.claim));
        for waiting in &mut self.requests {
            if waiting.may_try {
                waiting.retry |= !clash(held, &waiting.claim);
            } else if !clash(&taken, &waiting.claim) {
                waiting.may_try = true;
                waiting.wake.notify_one();
                taken.push(waiting.claim);
            }
        }
    }

    fn observe_held(&mut self, held: &[Claim], own: Sid) {
        let foreign = held.iter().any(|claim| claim.sid != own);
        if foreign && !self.foreign {
            self.pause = FIRST_PAUSE;
            if let Some(first) = self.requests.front() {
                first.wake.notify_one();
            }
        }
        self.foreign = foreign;
    }

    /// Randomized, so that clients that began to wait together do not poll together.
    fn next_pause(&self) -> Duration {
        let longest = if self.foreign { self.pause } else { OWN_PAUSE };
        rand::rng().random_range(longest / 2..=longest)
    }
}

#[cfg(test)]
mod tests;
