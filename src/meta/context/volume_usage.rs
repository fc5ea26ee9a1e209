//! Usage of the whole volume: as stored, and what the store does not know yet.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::Mutex;

#[derive(Default)]
pub struct VolumeUsage {
    pub(in crate::meta) space: UsageCounter,
    pub(in crate::meta) inodes: UsageCounter,
    /// Whether the stored usage was ever loaded.
    known: AtomicBool,
    /// One flush at a time, so that nothing is sent twice.
    pub(in crate::meta) flushing: Mutex<()>,
}

#[derive(Default)]
pub struct UsageCounter {
    stored: AtomicI64,
    unsent: AtomicI64,
}

impl VolumeUsage {
    /// Bytes and inodes in use, as far as this client knows.
    pub fn now(&self) -> (i64, i64) {
        (self.space.now(), self.inodes.now())
    }

    /// Whether [`VolumeUsage::now`] includes the usage in the store.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Adds usage that the commit has already stored.
    pub(in crate::meta) fn add_stored(&self, space: i64, inodes: i64) {
        self.space.stored.fetch_add(space, Ordering::Relaxed);
        self.inodes.stored.fetch_add(inodes, Ordering::Relaxed);
    }

    /// Adds usage that the store does not know yet.
    pub(in crate::meta) fn add_unsent(&self, space: i64, inodes: i64) {
        self.space.unsent.fetch_add(space, Ordering::Relaxed);
        self.inodes.unsent.fetch_add(inodes, Ordering::Relaxed);
    }

    pub(in crate::meta) fn set_stored(&self, space: i64, inodes: i64) {
        self.space.stored.store(space, Ordering::Relaxed);
        self.inodes.stored.store(inodes, Ordering::Relaxed);
        self.known.store(true, Ordering::Release);
    }
}

impl UsageCounter {
    pub(in crate::meta) fn unsent(&self) -> i64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Records that the store has added `delta` and now holds `stored`.
    pub(in crate::meta) fn mark_sent(&self, delta: i64, stored: i64) {
        self.unsent.fetch_sub(delta, Ordering::Relaxed);
        self.stored.store(stored, Ordering::Relaxed);
    }

    fn now(&self) -> i64 {
        self.stored.load(Ordering::Relaxed) + self.unsent.load(Ordering::Relaxed)
    }
}
