//! Long work, seen from outside: how far it has come, and whether it is still wanted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Shared by who does the work and who waits for it. Work is given up between two steps, never within
/// one: a change that was begun is carried out and counted.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
    given_up: AtomicBool,
}

impl Progress {
    /// Things dealt with so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Things to be dealt with, as far as known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes of what was dealt with.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Nobody wants it any more.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Asked before each step.
    pub fn check(&self) -> Result<()> {
        if self.given_up.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    pub fn did(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }

    pub fn found(&self, count: u64) {
        self.total.fetch_add(count, Ordering::Relaxed);
    }

    pub fn saw(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
