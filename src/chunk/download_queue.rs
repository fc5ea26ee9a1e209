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
    demanded: VecDeque<oneshot::Sender<DownloadPermit>>,
    ahead: VecDeque<oneshot::Sender<DownloadPermit>>,
}

/// How urgent a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A reader waits for it.
    Demanded,
    /// Nobody waits for it yet.
    Ahead,
}

/// The right to one download. Dropping it passes it on.
pub struct DownloadPermit {
    /// `None` once it was passed on.
    queue: Option<Arc<DownloadQueue>>,
}

impl DownloadQueue {
    pub fn new(limit: usize) -> Arc<Self> {
        let state = State { free: limit.max(1), demanded: VecDeque::new(), ahead: VecDeque::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Waits for a permit: first come, first served within a priority. A caller that gives up loses its
    /// place.
    pub async fn permit(self: &Arc<Self>, priority: Priority) -> DownloadPermit {
        let Some(waiting) = self.try_permit(priority) else { return self.granted() };
        match waiting.await {
            Ok(permit) => permit,
            // The sender is dropped only with the queue, which this call holds.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes a permit if one is free, and returns `None`; otherwise queues for one.
    fn try_permit(&self, priority: Priority) -> Option<oneshot::Receiver<DownloadPermit>> {
        let mut state = self.state.lock();
        if state.free > 0 {
            state.free -= 1;
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let queue = match priority {
            Priority::Demanded => &mut state.demanded,
            Priority::Ahead => &mut state.ahead,
        };
        if queue.len() >= LONG {
            queue.retain(|waiter| !waiter.is_closed());
        }
        queue.push_back(sender);
        Some(receiver)
    }

    fn granted(self: &Arc<Self>) -> DownloadPermit {
        DownloadPermit { queue: Some(Arc::clone(self)) }
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
                Err(mut permit) => drop(permit.queue.take()),
            }
        }
    }
}

impl Drop for DownloadPermit {
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
        let permit = queue.permit(Priority::Ahead).await;
        let mut ahead = Box::pin(queue.permit(Priority::Ahead));
        let mut demanded = Box::pin(queue.permit(Priority::Demanded));
        assert!(poll!(&mut ahead).is_pending() && poll!(&mut demanded).is_pending());
        drop(permit);
        let permit = demanded.await;
        assert!(poll!(&mut ahead).is_pending());
        drop(permit);
        ahead.await;
    }

    #[tokio::test]
    async fn those_that_give_up_are_passed_over() {
        let queue = DownloadQueue::new(1);
        let permit = queue.permit(Priority::Demanded).await;
        for _ in 0..1000 {
            let mut gives_up = Box::pin(queue.permit(Priority::Ahead));
            assert!(poll!(&mut gives_up).is_pending());
        }
        assert!(queue.state.lock().ahead.len() <= LONG);
        let mut last = Box::pin(queue.permit(Priority::Ahead));
        assert!(poll!(&mut last).is_pending());
        drop(permit);
        drop(last);
        queue.permit(Priority::Ahead).await;
    }

    #[tokio::test]
    async fn no_more_run_than_the_limit() {
        let queue = DownloadQueue::new(2);
        let _two = (queue.permit(Priority::Ahead).await, queue.permit(Priority::Demanded).await);
        assert!(poll!(Box::pin(queue.permit(Priority::Demanded))).is_pending());
    }
}
