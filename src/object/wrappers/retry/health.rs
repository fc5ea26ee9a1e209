//! What is wrong with a store at the moment, as far as its last requests tell.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::outage::{OBJECTS, Outage};
use crate::sync::{Mutex, MutexGuard};

/// A failure counts for so long, unless something succeeds before.
const RECENT: Duration = Duration::from_mins(5);

/// Shared by all who ask one store.
#[derive(Debug)]
pub struct StoreHealth {
    last: Mutex<Option<(Instant, String)>>,
    /// None if nobody needs a line in the log.
    outage: Option<Outage>,
}

impl Default for StoreHealth {
    fn default() -> Self {
        Self { last: Mutex::default(), outage: Some(Outage::new(OBJECTS)) }
    }
}

impl StoreHealth {
    /// Of a store whose failures go to somebody who tells them.
    pub fn quiet() -> Self {
        Self { last: Mutex::default(), outage: None }
    }

    /// A try has failed, and another will be made.
    pub fn failed(&self, error: &Error) {
        *self.lock() = Some((Instant::now(), error.to_string()));
        if let Some(outage) = &self.outage {
            outage.failed(error);
        }
    }

    /// A request has failed for good.
    pub fn gave_up(&self, error: &Error) {
        *self.lock() = Some((Instant::now(), error.to_string()));
        if let Some(outage) = &self.outage {
            outage.gave_up(error);
        }
    }

    /// Something went well at this place.
    pub fn succeeded(&self, place: &str) {
        if let Some(outage) = &self.outage {
            outage.worked(place);
        }
        let mut last = self.lock();
        if last.is_some() {
            *last = None;
        }
    }

    /// The last failure, if nothing has gone well since.
    pub fn last_failure(&self) -> Option<String> {
        let last = self.lock();
        last.as_ref().filter(|(at, _)| at.elapsed() < RECENT).map(|(_, cause)| cause.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.last.lock()
    }
}
