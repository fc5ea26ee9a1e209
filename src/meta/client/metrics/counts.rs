//! Event counters of this client, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Counts {
    plans: AtomicU64,
    conflicts: AtomicU64,
    missed_heartbeats: AtomicU64,
    failed_flushes: AtomicU64,
    recounts: AtomicU64,
    jobs: AtomicU64,
    failed_jobs: AtomicU64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident: $count:ident;)*) => {
        impl Counts {
            $(
                pub(in crate::meta::client) fn $count(&self) {
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
    /// Plans made: one for every operation, and one more after each conflict.
    plans: plan;
    /// Commits planned again because a guarded record had changed.
    conflicts: conflict;
    /// Heartbeats that failed at least in part.
    missed_heartbeats: missed_heartbeat;
    failed_flushes: failed_flush;
    /// Directories counted again because their dir stat was missing or wrong.
    recounts: recount;
    /// Periodic jobs that this client ran.
    jobs: job;
    failed_jobs: failed_job;
}
