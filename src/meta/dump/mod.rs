//! Dumps: all metadata of a volume as one file, and back, in the two formats of the Go client.
//!
//! Knows files and compression as little as the formats do: a dump is written to a channel of
//! pieces and read from any reader.

pub mod binary;
mod escape;
mod id_set;
pub mod json;
mod load;
mod node;

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::warn;

use crate::meta::Ino;

pub use load::{Loader, prepare};

/// No limit, for servers that take it as a signed number.
const ALL: usize = usize::MAX >> 1;

/// What to dump.
#[derive(Debug, Clone, Copy)]
pub struct DumpOptions {
    /// The directory that becomes the top of the dump; only in JSON.
    pub root: Ino,
    /// Only in JSON.
    pub skip_trash: bool,
    pub keep_secrets: bool,
    /// Requests at once.
    pub threads: usize,
}

/// Counts nodes or records while a dump is written or loaded.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a dump left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// Removed by other clients during the dump.
    pub gone: u64,
    /// Directories that other clients moved, which would have come twice.
    pub moved: u64,
    pub damaged: u64,
}

impl Skipped {
    /// Logs and counts a damaged record.
    fn damage(&mut self, what: &str) {
        warn!("left out of the dump: {what}");
        self.damaged += 1;
    }
}
