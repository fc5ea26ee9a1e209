//! Requests without a reply, on kernels that cannot send them again: where their bytes lie for the
//! next process, and which of them have their reply by now.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;

use nix::errno::Errno;
use tokio::sync::Notify;
use tracing::info;

use super::device::Device;
use super::in_flight::{InFlight, InFlightGuard};
use crate::error::{Error, Result};
use crate::ledger::{FoundMessage, MessageSlot, ReceiveSpace, ReceivedRequests};
use crate::sync::Mutex;

pub struct Unanswered {
    requests: Arc<ReceivedRequests>,
    places: Mutex<HashMap<u64, Place>>,
    /// Requests of the process before, to be handled before others are received.
    inherited: Mutex<Vec<u64>>,
    /// Space to receive into became free.
    freed: Notify,
}

/// Where a request without a reply is.
enum Place {
    /// Where it was received: a handler still reads it there.
    Space,
    Kept(MessageSlot, Option<InFlightGuard>),
}

impl Unanswered {
    /// For a new mount with requests of up to `largest` bytes.
    pub fn create(largest: usize) -> Result<Self> {
        Ok(Self::of(ReceivedRequests::create(largest)?, HashMap::new()))
    }

    /// Takes over what the process before received. The kernel says which of it has no reply.
    pub fn adopt(
        memory: OwnedFd,
        largest: usize,
        device: &Device,
        in_flight: &Arc<InFlight>,
    ) -> Result<Self> {
        let (requests, found) = ReceivedRequests::adopt(memory, largest)?;
        let mut places = HashMap::new();
        for FoundMessage { unique, slot } in found {
            if device.expects_reply(unique).map_err(fault)? {
                let memory = Self::memory_of(&requests, &slot, in_flight);
                places.insert(unique, Place::Kept(slot, memory));
            } else {
                requests.free(slot);
            }
        }
        info!(requests = places.len(), "requests that another process received are handled again");
        Ok(Self::of(requests, places))
    }

    fn of(requests: Arc<ReceivedRequests>, places: HashMap<u64, Place>) -> Self {
        let mut inherited: Vec<u64> = places.keys().copied().collect();
        // In the order in which they were sent.
        inherited.sort_unstable();
        let (places, inherited) = (Mutex::new(places), Mutex::new(inherited));
        Self { requests, places, inherited, freed: Notify::new() }
    }

    /// The memory, for a keeper and for the next process.
    pub fn requests(&self) -> &ReceivedRequests {
        &self.requests
    }

    /// The numbers of the requests that the process before received.
    pub fn inherited(&self) -> Vec<u64> {
        std::mem::take(&mut self.inherited.lock())
    }

    /// Returns the bytes of a request that has no reply and is not being handled.
    pub fn message(&self, unique: u64) -> Option<Vec<u8>> {
        match self.places.lock().get(&unique)? {
            Place::Kept(slot, _) => Some(self.requests.message(slot)),
            Place::Space => None,
        }
    }

    /// Waits for space to receive into.
    pub async fn space(&self) -> ReceiveSpace {
        loop {
            let mut freed = pin!(self.freed.notified());
            // Registered before trying, so that no notification is missed.
            freed.as_mut().enable();
            if let Some(space) = self.requests.space() {
                return space;
            }
            freed.await;
        }
    }

    /// Whether a message of this length should not hold the space that it was received in.
    pub fn is_small(&self, length: usize) -> bool {
        self.requests.is_small(length)
    }

    /// Notes a request that was received, before it is handled.
    pub fn begin(&self, unique: u64) {
        self.places.lock().insert(unique, Place::Space);
    }

    /// Notes that a request has its reply.
    pub fn end(&self, unique: u64) {
        // Space is cleared by whoever reads it.
        if let Some(Place::Kept(slot, _memory)) = self.places.lock().remove(&unique) {
            self.requests.free(slot);
            self.freed.notify_waiters();
        }
    }

    /// Has the space to receive into again, after the request in it was handled or copied: if that
    /// has no reply yet, its bytes are kept. `None` if it keeps the space.
    pub fn settle(
        &self,
        mut space: ReceiveSpace,
        unique: Option<u64>,
        length: usize,
        in_flight: &Arc<InFlight>,
    ) -> Option<ReceiveSpace> {
        let mut places = self.places.lock();
        let Some(place) = unique.and_then(|unique| places.get_mut(&unique)) else {
            space.clear();
            return Some(space);
        };
        let (slot, space) = self.requests.keep(space, length);
        let memory = Self::memory_of(&self.requests, &slot, in_flight);
        *place = Place::Kept(slot, memory);
        space
    }

    /// Gives space back that is not received into any more.
    pub fn give_back(&self, space: ReceiveSpace) {
        space.free();
        self.freed.notify_waiters();
    }

    /// Stores nothing any more: the next process owns the memory.
    pub fn leave(&self) {
        self.requests.leave();
    }

    /// Space that is held counts as memory of requests in flight, whatever the length of the
    /// request in it.
    fn memory_of(
        requests: &ReceivedRequests,
        slot: &MessageSlot,
        in_flight: &Arc<InFlight>,
    ) -> Option<InFlightGuard> {
        requests.is_space(slot).then(|| in_flight.add(requests.space_size()))
    }
}

fn fault(errno: Errno) -> Error {
    Error::Unreachable { place: "/dev/fuse".into(), cause: errno.to_string() }
}
