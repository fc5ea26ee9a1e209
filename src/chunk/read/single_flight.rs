//! Single flight: all readers that need the same whole block share one fetch of it.
//!
//! A fetch runs in a task of its own and continues if the reader that started it gives up.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

use crate::chunk::BlockKey;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

type Outcome = Result<Bytes>;

/// The running fetches of one volume.
#[derive(Default)]
pub struct SingleFlight {
    running: Mutex<HashMap<BlockKey, Waiter>>,
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
}

/// The result of [`SingleFlight::join_or_start`].
pub enum Join {
    /// A fetch of the block is running.
    Waiting(Waiter),
    /// No fetch is needed: the block has just arrived.
    Ready(Bytes),
    /// The caller must fetch the block.
    Started(Waiter, Fetch),
}

impl SingleFlight {
    /// Returns a waiter for the fetch of a block, if one is running.
    pub fn waiter(&self, block: BlockKey) -> Option<Waiter> {
        self.lock().get(&block).cloned()
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        self.lock().contains_key(&block)
    }

    /// Joins the fetch of a block, or starts one. `ready` looks up the block where fetches leave
    /// their results. It runs under the lock, so no fetch can finish unseen between the lookup and
    /// the start.
    pub fn join_or_start(
        self: &Arc<Self>,
        block: BlockKey,
        ready: impl FnOnce() -> Option<Bytes>,
    ) -> Join {
        let mut running = self.lock();
        if let Some(waiter) = running.get(&block) {
            return Join::Waiting(waiter.clone());
        }
        if let Some(bytes) = ready() {
            return Join::Ready(bytes);
        }
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter(receiver.shared());
        running.insert(block, waiter.clone());
        let fetch = Fetch { single_flight: Arc::clone(self), block, outcome: Some(sender) };
        Join::Started(waiter, fetch)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlockKey, Waiter>> {
        self.running.lock()
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
        match fetches.join_or_start(BLOCK, || None) {
            Join::Started(waiter, fetch) => (waiter, fetch),
            _ => panic!("a fetch is running already"),
        }
    }

    #[tokio::test]
    async fn every_waiter_of_a_fetch_gets_its_block() {
        let fetches = Arc::new(SingleFlight::default());
        let (first, fetch) = start(&fetches);
        let Join::Waiting(second) = fetches.join_or_start(BLOCK, || None) else {
            panic!("a second fetch was started")
        };
        fetch.finish(Ok(Bytes::from_static(b"abc")));
        assert_eq!(
            (first.wait().await.unwrap(), second.wait().await.unwrap()),
            ("abc".into(), "abc".into())
        );
        assert!(fetches.waiter(BLOCK).is_none());
    }

    #[tokio::test]
    async fn an_error_reaches_every_waiter_and_is_not_kept() {
        let fetches = Arc::new(SingleFlight::default());
        let (first, fetch) = start(&fetches);
        let second = fetches.waiter(BLOCK).unwrap();
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
        let ready = fetches.join_or_start(BLOCK, || Some(Bytes::from_static(b"abc")));
        assert!(matches!(ready, Join::Ready(bytes) if bytes == "abc"));
    }
}
