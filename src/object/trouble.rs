//! What is wrong with a store at the moment, as far as its last requests tell.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// A failure counts for so long, unless something succeeds before.
const RECENT: Duration = Duration::from_mins(5);

/// Shared by all who ask one store.
#[derive(Debug, Default)]
pub struct Trouble {
    last: Mutex<Option<(Instant, String)>>,
}

impl Trouble {
    /// A try has failed.
    pub fn met(&self, error: &Error) {
        *self.lock() = Some((Instant::now(), error.to_string()));
    }

    /// Something went well.
    pub fn over(&self) {
        let mut last = self.lock();
        if last.is_some() {
            *last = None;
        }
    }

    /// The last failure, if nothing has gone well since.
    pub fn now(&self) -> Option<String> {
        let last = self.lock();
        last.as_ref().filter(|(at, _)| at.elapsed() < RECENT).map(|(_, cause)| cause.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
