//! Progress of long work: how far it has come, and whether it is cancelled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Shared by the task that does the work and the one that waits for it. Work is cancelled between
/// two steps, never within one: a change that was started is completed and counted.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Progress {
    /// Items processed so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Items to be processed, as far as known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes of the items processed.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests that the work stops before its next step.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails with `Interrupted` if the work is cancelled. Must be called before each step.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    pub fn add_done(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_total(&self, count: u64) {
        self.total.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
