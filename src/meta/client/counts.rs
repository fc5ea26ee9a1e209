//! Counts of what this client does, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Counts {
    plans: AtomicU64,
    conflicts: AtomicU64,
    missed_beats: AtomicU64,
    failed_flushes: AtomicU64,
    recounts: AtomicU64,
    jobs: AtomicU64,
    failed_jobs: AtomicU64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident: $count:ident;)*) => {
        impl Counts {
            $(
                pub(in crate::meta) fn $count(&self) {
                    self.$field.fetch_add(1, Ordering::Relaxed);
                }

                $(#[$doc])*
                pub fn $field(&self) -> u64 {
                    self.$field.load(Ordering::Relaxed)
                }
            )*
        }
    };
}

counts! {
    /// Plans made: every operation makes one, and another one after each conflict.
    plans: plan;
    /// Commits planned again because a guarded record had changed.
    conflicts: conflict;
    /// Heartbeats of which a part failed.
    missed_beats: missed_beat;
    failed_flushes: failed_flush;
    /// Directories counted anew because their stat was missing or wrong.
    recounts: recount;
    /// Background jobs this client was elected for.
    jobs: job;
    failed_jobs: failed_job;
}
