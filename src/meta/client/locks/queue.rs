//! Lock queues: the requests of this process that wait for a lock, and whose turn it is to try.
//!
//! A request that waits costs nothing: only the first of an inode's queue looks at the store from
//! time to time, on behalf of all. Whoever learns what is held (by a release, by a look, by getting
//! a lock) gives turns: in order of arrival, to every request that clashes neither with what is held
//! nor with a request that already has its turn. So a free exclusive lock wakes one writer, not
//! all, and a request that can be granted is never held up by one that cannot: with locks that
//! would be a deadlock, not fairness.
//!
//! A turn is only leave to try; the store decides. Nothing here is held across an await.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::Notify;

use crate::meta::op::claim::{Claim, Family, Tried};
use crate::meta::{Ino, Sid};
use crate::sync::{Mutex, MutexGuard};

/// The first pause between two looks for a lock that another client holds. Locks are mostly held
/// for the time of a few round trips, and this is about one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Each pause is longer by half, so that a lock is noticed late by at most half the time it was
/// waited for.
const GROWTH: (u32, u32) = (3, 2);
/// The longest pause: a hundred clients that wait for one lock are a thousand reads a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Between looks if all that is held is our own: a release is told at once. But if this session was
/// taken for dead, or is being handed over, its locks go by other hands.
const OWN_PAUSE: Duration = Duration::from_secs(1);

/// Where requests meet.
pub type At = (Ino, Family);

/// Every queue of this client. One without requests does not exist.
#[derive(Default)]
pub struct LockQueues {
    queues: Mutex<HashMap<At, Queue>>,
    tickets: AtomicU64,
}

struct Queue {
    /// In order of arrival. The first is the one that looks.
    line: VecDeque<Waiting>,
    /// Whether other sessions held anything when last seen.
    foreign: bool,
    pause: Duration,
}

struct Waiting {
    ticket: u64,
    claim: Claim,
    /// It has its turn: it tries, or is about to.
    trying: bool,
    /// Something was released since it began to try, so it may have looked too early.
    again: bool,
    wake: Arc<Notify>,
}

/// A request's place in a queue; dropping it leaves the queue.
pub struct Place<'a> {
    queues: &'a LockQueues,
    at: At,
    ticket: u64,
    wake: Arc<Notify>,
}

enum Next {
    Try,
    /// Look after this time, if nothing is heard before.
    Look(Duration),
    Listen,
}

impl LockQueues {
    pub fn join(&self, at: At, claim: Claim) -> Place<'_> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let wake = Arc::new(Notify::new());
        let mut queues = self.lock();
        let queue = queues.entry(at).or_default();
        // Nobody steps in front of a request that was just told to try.
        let trying = !queue.line.iter().any(|other| other.trying && other.claim.clashes(&claim));
        queue.line.push_back(Waiting {
            ticket,
            claim,
            trying,
            again: false,
            wake: Arc::clone(&wake),
        });
        Place { queues: self, at, ticket, wake }
    }

    /// Takes note of what a try came to. It must be told before the requester is: whoever waits
    /// for the same lock then has its turn before the requester's next step.
    pub fn settle(&self, at: At, ticket: Option<u64>, tried: &Tried, own: Sid) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&at) else { return };
        if tried.granted {
            queue.remove(ticket);
        } else if let Some(waiting) = queue.find(ticket) {
            waiting.trying = std::mem::take(&mut waiting.again);
        }
        queue.saw(&tried.held, own);
        queue.give_turns(&tried.held);
        if queue.line.is_empty() {
            queues.remove(&at);
        }
    }

    /// How many requests wait, on all inodes.
    pub fn waiting(&self) -> usize {
        self.lock().values().map(|queue| queue.line.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<At, Queue>> {
        self.queues.lock()
    }
}

impl Place<'_> {
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Waits until there is a reason to try.
    pub async fn turn(&self) {
        loop {
            match self.next() {
                Next::Try => return,
                Next::Listen => self.wake.notified().await,
                Next::Look(pause) => {
                    if tokio::time::timeout(pause, self.wake.notified()).await.is_err() {
                        self.look();
                    }
                }
            }
        }
    }

    fn next(&self) -> Next {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.at) else { return Next::Try };
        let is_first = queue.line.front().is_some_and(|first| first.ticket == self.ticket);
        let pause = queue.next_pause();
        match queue.find(Some(self.ticket)) {
            Some(waiting) if !waiting.trying => {
                if is_first {
                    Next::Look(pause)
                } else {
                    Next::Listen
                }
            }
            Some(waiting) => {
                waiting.again = false;
                Next::Try
            }
            None => Next::Try,
        }
    }

    /// The pause is over: tries without having been told to.
    fn look(&self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.at) else { return };
        queue.pause = (queue.pause * GROWTH.0 / GROWTH.1).min(LONGEST_PAUSE);
        if let Some(waiting) = queue.find(Some(self.ticket)) {
            waiting.trying = true;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.at) else { return };
        if queue.remove(Some(self.ticket)).is_some_and(|gone| gone.trying) {
            // It took its turn away unused. What is held is not known here, so the next ones look.
            queue.give_turns(&[]);
        }
        if queue.line.is_empty() {
            queues.remove(&self.at);
        }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self { line: VecDeque::new(), foreign: true, pause: FIRST_PAUSE }
    }
}

impl Queue {
    fn find(&mut self, ticket: Option<u64>) -> Option<&mut Waiting> {
        self.line.iter_mut().find(|waiting| Some(waiting.ticket) == ticket)
    }

    fn remove(&mut self, ticket: Option<u64>) -> Option<Waiting> {
        let index = self.line.iter().position(|waiting| Some(waiting.ticket) == ticket)?;
        let gone = self.line.remove(index);
        if let Some(first) = self.line.front().filter(|_| index == 0) {
            // From now on it is the one that looks.
            first.wake.notify_one();
        }
        gone
    }

    fn give_turns(&mut self, held: &[Claim]) {
        let clash = |claims: &[Claim], one: &Claim| claims.iter().any(|claim| claim.clashes(one));
        let mut taken = held.to_vec();
        taken.extend(self.line.iter().filter(|other| other.trying).map(|other| other.claim));
        for waiting in &mut self.line {
            if waiting.trying {
                waiting.again |= !clash(held, &waiting.claim);
            } else if !clash(&taken, &waiting.claim) {
                waiting.trying = true;
                waiting.wake.notify_one();
                taken.push(waiting.claim);
            }
        }
    }

    fn saw(&mut self, held: &[Claim], own: Sid) {
        let foreign = held.iter().any(|claim| claim.sid != own);
        if foreign && !self.foreign {
            self.pause = FIRST_PAUSE;
            if let Some(first) = self.line.front() {
                first.wake.notify_one();
            }
        }
        self.foreign = foreign;
    }

    /// Clients that began to wait together must not look together for ever.
    fn next_pause(&self) -> Duration {
        let longest = if self.foreign { self.pause } else { OWN_PAUSE };
        rand::rng().random_range(longest / 2..=longest)
    }
}

#[cfg(test)]
mod tests;
