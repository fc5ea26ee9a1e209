//! Single flight: all readers that need the same whole block share one fetch of it.
//!
//! A fetch runs in a task of its own and continues if the reader that started it gives up.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::{oneshot, watch};

use crate::chunk::BlockKey;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

type Outcome = Result<Bytes>;

/// The running fetches of one volume.
#[derive(Default)]
pub struct SingleFlight {
    running: Mutex<HashMap<BlockKey, Running>>,
}

/// A fetch that has begun or is queued.
struct Running {
    waiter: Waiter,
    /// Whether a reader waits for it.
    wanted: watch::Sender<bool>,
}

/// Waits for a running fetch.
#[derive(Clone)]
pub struct Waiter(Shared<oneshot::Receiver<Outcome>>);

/// The obligation to fetch a block. While it exists, other readers join it instead of starting a
/// fetch of their own.
pub struct Fetch {
    single_flight: Arc<SingleFlight>,
    block: BlockKey,
    outcome: Option<oneshot::Sender<Outcome>>,
    wanted: watch::Receiver<bool>,
}

/// The result of [`SingleFlight::want_or_start`].
pub enum Join {
    /// A fetch of the block is running.
    Waiting(Waiter),
    /// No fetch is needed: the block has just arrived.
    Ready(Bytes),
    /// The caller must fetch the block.
    Started(Waiter, Fetch),
}

impl SingleFlight {
    /// Returns a waiter for the fetch of a block, if one is running. The fetch is wanted from now
    /// on.
    pub fn want(&self, block: BlockKey) -> Option<Waiter> {
        self.lock().get(&block).map(Running::want)
    }

    /// Returns a waiter for the fetch of a block, if one is running, for somebody who is in no
    /// hurry.
    pub fn watch(&self, block: BlockKey) -> Option<Waiter> {
        self.lock().get(&block).map(|running| running.waiter.clone())
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        self.lock().contains_key(&block)
    }

    /// Joins the fetch of a block, or starts one that is wanted. `ready` looks up the block where
    /// fetches leave their results. It runs under the lock, so no fetch can finish unseen between
    /// the lookup and the start.
    pub fn want_or_start(
        self: &Arc<Self>,
        block: BlockKey,
        ready: impl FnOnce() -> Option<Bytes>,
    ) -> Join {
        let mut running = self.lock();
        if let Some(running) = running.get(&block) {
            return Join::Waiting(running.want());
        }
        if let Some(bytes) = ready() {
            return Join::Ready(bytes);
        }
        let (waiter, fetch) = self.start(&mut running, block, true);
        Join::Started(waiter, fetch)
    }

    /// Starts the fetch of a block that nobody waits for yet, unless one is running.
    pub fn start_unwanted(self: &Arc<Self>, block: BlockKey) -> Option<Fetch> {
        let mut running = self.lock();
        if running.contains_key(&block) {
            return None;
        }
        Some(self.start(&mut running, block, false).1)
    }

    fn start(
        self: &Arc<Self>,
        running: &mut HashMap<BlockKey, Running>,
        block: BlockKey,
        is_wanted: bool,
    ) -> (Waiter, Fetch) {
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter(receiver.shared());
        let (wanted, seen) = watch::channel(is_wanted);
        running.insert(block, Running { waiter: waiter.clone(), wanted });
        let single_flight = Arc::clone(self);
        (waiter, Fetch { single_flight, block, outcome: Some(sender), wanted: seen })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlockKey, Running>> {
        self.running.lock()
    }
}

impl Running {
    fn want(&self) -> Waiter {
        self.wanted.send_replace(true);
        self.waiter.clone()
    }
}

impl Waiter {
    /// Waits for the block. An error reaches every waiter of this fetch and is not kept for later
    /// readers.
    pub async fn wait(self) -> Outcome {
        let lost = |_| Err(Error::internal("fetching a block", "its task ended without a result"));
        self.0.await.unwrap_or_else(lost)
    }
}

impl Fetch {
    pub fn block(&self) -> BlockKey {
        self.block
    }

    /// Waits until a reader wants the block.
    pub async fn wanted(&mut self) {
        if self.wanted.wait_for(|wanted| *wanted).await.is_err() {
            // The sender is dropped with the entry of this fetch, which is still there.
            std::future::pending::<()>().await;
        }
    }

    /// Ends the fetch without a result, unless a reader wants the block. Returns whether it ended.
    pub fn give_up(&mut self) -> bool {
        let mut running = self.single_flight.lock();
        if *self.wanted.borrow() {
            return false;
        }
        running.remove(&self.block);
        self.outcome = None;
        true
    }

    /// Ends the fetch. On success, readers must already be able to find the block.
    pub fn finish(mut self, outcome: Outcome) {
        self.single_flight.lock().remove(&self.block);
        if let Some(sender) = self.outcome.take() {
            // All waiters may have given up.
            let _ = sender.send(outcome);
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if self.outcome.is_some() {
            self.single_flight.lock().remove(&self.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    const BLOCK: BlockKey = BlockKey { slice: SliceId(1), index: 0, size: 3 };

    fn start(fetches: &Arc<SingleFlight>) -> (Waiter, Fetch) {
        match fetches.want_or_start(BLOCK, || None) {
            Join::Started(waiter, fetch) => (waiter, fetch),
            _ => panic!("a fetch is running already"),
        }
    }

    #[tokio::test]
    async fn every_waiter_of_a_fetch_gets_its_block() {
        let fetches = Arc::new(SingleFlight::default());
        let (first, fetch) = start(&fetches);
        let Join::Waiting(second) = fetches.want_or_start(BLOCK, || None) else {
            panic!("a second fetch was started")
        };
        fetch.finish(Ok(Bytes::from_static(b"abc")));
        assert_eq!(
            (first.wait().await.unwrap(), second.wait().await.unwrap()),
            ("abc".into(), "abc".into())
        );
        assert!(fetches.want(BLOCK).is_none());
    }

    #[tokio::test]
    async fn an_error_reaches_every_waiter_and_is_not_kept() {
        let fetches = Arc::new(SingleFlight::default());
        let (first, fetch) = start(&fetches);
        let second = fetches.want(BLOCK).unwrap();
        fetch.finish(Err(Error::NoSpace));
        for waiter in [first, second] {
            assert!(matches!(waiter.wait().await, Err(Error::NoSpace)));
        }
        start(&fetches);
    }

    #[tokio::test]
    async fn dropping_a_fetch_lets_the_next_reader_start_one() {
        let fetches = Arc::new(SingleFlight::default());
        let (waiter, fetch) = start(&fetches);
        drop(fetch);
        assert!(matches!(waiter.wait().await, Err(Error::Internal { .. })));
        start(&fetches);
    }

    #[tokio::test]
    async fn a_block_that_has_just_arrived_needs_no_fetch() {
        let fetches = Arc::new(SingleFlight::default());
        let ready = fetches.want_or_start(BLOCK, || Some(Bytes::from_static(b"abc")));
        assert!(matches!(ready, Join::Ready(bytes) if bytes == "abc"));
    }

    #[tokio::test]
    async fn a_fetch_that_nobody_wants_can_be_given_up() {
        let fetches = Arc::new(SingleFlight::default());
        let mut fetch = fetches.start_unwanted(BLOCK).unwrap();
        assert!(fetches.start_unwanted(BLOCK).is_none());
        assert!(fetches.watch(BLOCK).is_some(), "no hurry");
        assert!(fetch.give_up());
        assert!(!fetches.contains(BLOCK));
    }

    #[tokio::test]
    async fn a_fetch_that_a_reader_wants_cannot_be_given_up() {
        let fetches = Arc::new(SingleFlight::default());
        let mut fetch = fetches.start_unwanted(BLOCK).unwrap();
        assert!(futures::poll!(Box::pin(fetch.wanted())).is_pending());
        let waiter = fetches.want(BLOCK).unwrap();
        fetch.wanted().await;
        assert!(!fetch.give_up());
        fetch.finish(Ok(Bytes::from_static(b"abc")));
        assert_eq!(waiter.wait().await.unwrap(), "abc");
    }
}
