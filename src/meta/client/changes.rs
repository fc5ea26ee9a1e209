//! How many commits this client has tried, for whoever must know that what he read is not older than
//! they are.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Changes(AtomicU64);

/// A commit under way. It counts when it is over, however it ends: also if its outcome is unknown,
/// or if nobody waits for it any more.
pub struct Commit<'a>(&'a Changes);

impl Changes {
    pub fn begin(&self) -> Commit<'_> {
        Commit(self)
    }

    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}
