//! The health of a store, as seen by its recent requests.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::outage::{OBJECTS, Outage};
use crate::sync::{Mutex, MutexGuard};

/// How long a failure counts, unless a request succeeds before.
const RECENT: Duration = Duration::from_mins(5);

/// The health of one store, shared by all its users.
#[derive(Debug)]
pub struct StoreHealth {
    last: Mutex<Option<(Instant, String)>>,
    /// `None` if failures need not be logged.
    outage: Option<Outage>,
}

impl Default for StoreHealth {
    fn default() -> Self {
        Self { last: Mutex::default(), outage: Some(Outage::new(OBJECTS)) }
    }
}

impl StoreHealth {
    /// For a store whose failures the caller reports itself.
    pub fn quiet() -> Self {
        Self { last: Mutex::default(), outage: None }
    }

    /// Records a failed attempt that will be retried.
    pub fn failed(&self, error: &Error) {
        *self.lock() = Some((Instant::now(), error.to_string()));
        if let Some(outage) = &self.outage {
            outage.failed(error);
        }
    }

    /// Records a request that failed for good.
    pub fn gave_up(&self, error: &Error) {
        *self.lock() = Some((Instant::now(), error.to_string()));
        if let Some(outage) = &self.outage {
            outage.gave_up(error);
        }
    }

    /// Records a success at this place.
    pub fn succeeded(&self, place: &str) {
        if let Some(outage) = &self.outage {
            outage.succeeded(place);
        }
        let mut last = self.lock();
        if last.is_some() {
            *last = None;
        }
    }

    /// Returns the last failure, if no request has succeeded since.
    pub fn last_failure(&self) -> Option<String> {
        let last = self.lock();
        last.as_ref().filter(|(at, _)| at.elapsed() < RECENT).map(|(_, cause)| cause.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.last.lock()
    }
}
