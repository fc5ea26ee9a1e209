//! Flights: whole blocks on their way here. Many who want one block share one flight.
//!
//! A flight is a task of its own: it goes on when the one who started it gives up.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

use super::BlockKey;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

type Outcome = Result<Bytes>;

/// Every flight of one volume.
#[derive(Default)]
pub struct Flights {
    open: Mutex<HashMap<BlockKey, Flight>>,
}

/// A place on a flight.
#[derive(Clone)]
pub struct Flight(Shared<oneshot::Receiver<Outcome>>);

/// The duty to bring a block; while it lasts, others join instead of starting their own.
pub struct Duty {
    flights: Arc<Flights>,
    block: BlockKey,
    outcome: Option<oneshot::Sender<Outcome>>,
}

/// What became of the wish for a flight.
pub enum Boarding {
    /// There is one already.
    Joined(Flight),
    /// None is needed: the block has just arrived.
    Arrived(Bytes),
    /// The caller is to bring the block.
    Started(Flight, Duty),
}

impl Flights {
    /// The flight of a block, if there is one.
    pub fn join(&self, block: BlockKey) -> Option<Flight> {
        self.lock().get(&block).cloned()
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        self.lock().contains_key(&block)
    }

    /// Joins the flight of a block, or starts it. `arrived` looks where flights leave their blocks:
    /// under the lock, so that none lands unseen between the look and the start.
    pub fn board(
        self: &Arc<Self>,
        block: BlockKey,
        arrived: impl FnOnce() -> Option<Bytes>,
    ) -> Boarding {
        let mut open = self.lock();
        if let Some(flight) = open.get(&block) {
            return Boarding::Joined(flight.clone());
        }
        if let Some(bytes) = arrived() {
            return Boarding::Arrived(bytes);
        }
        let (sender, receiver) = oneshot::channel();
        let flight = Flight(receiver.shared());
        open.insert(block, flight.clone());
        let duty = Duty { flights: Arc::clone(self), block, outcome: Some(sender) };
        Boarding::Started(flight, duty)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlockKey, Flight>> {
        self.open.lock()
    }
}

impl Flight {
    /// Waits for the block. An error reaches everybody on the flight, and nobody after it.
    pub async fn land(self) -> Outcome {
        let lost = |_| Err(Error::internal("fetching a block", "its task ended without a result"));
        self.0.await.unwrap_or_else(lost)
    }
}

impl Duty {
    pub fn block(&self) -> BlockKey {
        self.block
    }

    /// Ends the flight. A block must be found by its readers before this.
    pub fn done(mut self, outcome: Outcome) {
        self.flights.lock().remove(&self.block);
        if let Some(sender) = self.outcome.take() {
            // Nobody may be waiting any more.
            let _ = sender.send(outcome);
        }
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if self.outcome.is_some() {
            self.flights.lock().remove(&self.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    const BLOCK: BlockKey = BlockKey { slice: SliceId(1), index: 0, size: 3 };

    fn start(flights: &Arc<Flights>) -> (Flight, Duty) {
        match flights.board(BLOCK, || None) {
            Boarding::Started(flight, duty) => (flight, duty),
            _ => panic!("there is a flight"),
        }
    }

    #[tokio::test]
    async fn everybody_on_a_flight_gets_its_block() {
        let flights = Arc::new(Flights::default());
        let (first, duty) = start(&flights);
        let Boarding::Joined(second) = flights.board(BLOCK, || None) else {
            panic!("a second one")
        };
        duty.done(Ok(Bytes::from_static(b"abc")));
        assert_eq!(
            (first.land().await.unwrap(), second.land().await.unwrap()),
            ("abc".into(), "abc".into())
        );
        assert!(flights.join(BLOCK).is_none());
    }

    #[tokio::test]
    async fn an_error_reaches_everybody_and_is_not_kept() {
        let flights = Arc::new(Flights::default());
        let (first, duty) = start(&flights);
        let second = flights.join(BLOCK).unwrap();
        duty.done(Err(Error::NoSpace));
        for flight in [first, second] {
            assert!(matches!(flight.land().await, Err(Error::NoSpace)));
        }
        start(&flights);
    }

    #[tokio::test]
    async fn a_duty_that_is_dropped_leaves_no_flight_behind() {
        let flights = Arc::new(Flights::default());
        let (flight, duty) = start(&flights);
        drop(duty);
        assert!(matches!(flight.land().await, Err(Error::Internal { .. })));
        start(&flights);
    }

    #[tokio::test]
    async fn a_block_that_has_just_arrived_needs_no_flight() {
        let flights = Arc::new(Flights::default());
        let arrived = flights.board(BLOCK, || Some(Bytes::from_static(b"abc")));
        assert!(matches!(arrived, Boarding::Arrived(bytes) if bytes == "abc"));
    }
}
