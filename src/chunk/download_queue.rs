//! The queue of downloads: how many run at once, and which one is next.
//!
//! Downloads that a reader waits for come first; those ahead of a reader wait until none of these is
//! left.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::sync::Mutex;

/// A queue longer than this drops those that have given up before it grows.
const LONG: usize = 64;

pub struct DownloadQueue {
    state: Mutex<State>,
}

struct State {
    /// Downloads that may begin now.
    free: usize,
    demanded: VecDeque<oneshot::Sender<Turn>>,
    ahead: VecDeque<oneshot::Sender<Turn>>,
}

/// How urgent a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A reader waits for it.
    Demanded,
    /// Nobody waits for it yet.
    Ahead,
}

/// The right to one download. Dropping it passes it on.
pub struct Turn {
    /// `None` once it was passed on.
    queue: Option<Arc<DownloadQueue>>,
}

impl DownloadQueue {
    pub fn new(limit: usize) -> Arc<Self> {
        let state = State { free: limit.max(1), demanded: VecDeque::new(), ahead: VecDeque::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Waits for a turn: first come, first served within a lane. A caller that gives up loses its
    /// place.
    pub async fn turn(self: &Arc<Self>, lane: Lane) -> Turn {
        let Some(waiting) = self.try_turn(lane) else { return self.granted() };
        match waiting.await {
            Ok(turn) => turn,
            // The sender is dropped only with the queue, which this call holds.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes a turn if one is free, and returns `None`; otherwise queues for one.
    fn try_turn(&self, lane: Lane) -> Option<oneshot::Receiver<Turn>> {
        let mut state = self.state.lock();
        if state.free > 0 {
            state.free -= 1;
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let queue = match lane {
            Lane::Demanded => &mut state.demanded,
            Lane::Ahead => &mut state.ahead,
        };
        if queue.len() >= LONG {
            queue.retain(|waiter| !waiter.is_closed());
        }
        queue.push_back(sender);
        Some(receiver)
    }

    fn granted(self: &Arc<Self>) -> Turn {
        Turn { queue: Some(Arc::clone(self)) }
    }

    fn pass_on(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.demanded.pop_front().or_else(|| state.ahead.pop_front());
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(self.granted()) {
                Ok(()) => return,
                // It has given up. Here and not by dropping, which would recurse.
                Err(mut turn) => drop(turn.queue.take()),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn those_that_are_waited_for_come_first() {
        let queue = DownloadQueue::new(1);
        let turn = queue.turn(Lane::Ahead).await;
        let mut ahead = Box::pin(queue.turn(Lane::Ahead));
        let mut demanded = Box::pin(queue.turn(Lane::Demanded));
        assert!(poll!(&mut ahead).is_pending() && poll!(&mut demanded).is_pending());
        drop(turn);
        let turn = demanded.await;
        assert!(poll!(&mut ahead).is_pending());
        drop(turn);
        ahead.await;
    }

    #[tokio::test]
    async fn those_that_give_up_are_passed_over() {
        let queue = DownloadQueue::new(1);
        let turn = queue.turn(Lane::Demanded).await;
        for _ in 0..1000 {
            let mut gives_up = Box::pin(queue.turn(Lane::Ahead));
            assert!(poll!(&mut gives_up).is_pending());
        }
        assert!(queue.state.lock().ahead.len() <= LONG);
        let mut last = Box::pin(queue.turn(Lane::Ahead));
        assert!(poll!(&mut last).is_pending());
        drop(turn);
        drop(last);
        queue.turn(Lane::Ahead).await;
    }

    #[tokio::test]
    async fn no_more_run_than_the_limit() {
        let queue = DownloadQueue::new(2);
        let _two = (queue.turn(Lane::Ahead).await, queue.turn(Lane::Demanded).await);
        assert!(poll!(Box::pin(queue.turn(Lane::Demanded))).is_pending());
    }
}
