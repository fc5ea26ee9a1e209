//! Staging: blocks that count as stored because they are on disk, and go to the bucket later.
//!
//! A block leaves the disk only after it has arrived in the bucket, so whatever dies in between, the
//! next run finds it and uploads it again, which changes nothing if it was there.

mod list;
mod uploader;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::cache::VolumeCache;
use super::{BlockKey, Writeback};
use crate::error::{Error, Result};
use list::List;
pub use uploader::Loaded;

/// A disk that does not answer for so long is not waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// The staged blocks of one volume.
pub struct Staging {
    pub cache: Arc<VolumeCache>,
    /// None: nothing is staged, but what an earlier run has left is uploaded.
    rules: Option<Writeback>,
    list: List,
    /// What an earlier run has left is in the list.
    is_listed: AtomicBool,
    /// Something became due, or is no longer there.
    changed: Notify,
    /// The hour of the day.
    clock: Box<dyn Fn() -> u32 + Send + Sync>,
    delayed_millis: AtomicU64,
    errors: AtomicU64,
}

impl Staging {
    pub fn new(cache: Arc<VolumeCache>, rules: Option<Writeback>) -> Self {
        Self::with_clock(cache, rules, || chrono::Timelike::hour(&chrono::Local::now()))
    }

    fn with_clock(
        cache: Arc<VolumeCache>,
        rules: Option<Writeback>,
        clock: impl Fn() -> u32 + Send + Sync + 'static,
    ) -> Self {
        let delay = rules.as_ref().map_or(Duration::ZERO, |rules| rules.delay);
        Self {
            cache,
            rules,
            list: List::new(delay),
            is_listed: AtomicBool::new(false),
            changed: Notify::new(),
            clock: Box::new(clock),
            delayed_millis: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    /// Whether a block of that size is to be staged.
    pub fn takes(&self, size: u32) -> bool {
        let threshold = self.rules.as_ref().map(|rules| rules.threshold);
        threshold.is_some_and(|threshold| threshold.is_none_or(|limit| size < limit))
    }

    /// Stages a block. If it cannot be, the caller uploads it.
    pub async fn stage(&self, block: BlockKey, body: &Bytes, tier: u8) -> Result<()> {
        let staged = tokio::time::timeout(PATIENCE, self.cache.stage(block, body, tier)).await;
        staged.unwrap_or_else(|_| {
            Err(Error::Storage {
                place: "cache".to_owned(),
                action: "stage",
                key: format!("{block:?}"),
                cause: "the disk does not answer".to_owned(),
            })
        })
    }

    /// Takes note that a block could not be staged.
    pub fn refused(&self, error: &Error) {
        // One line for the first, or a full disk would fill the log too.
        if self.errors.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!(%error, "cannot stage, uploading directly");
        } else {
            debug!(%error, "cannot stage, uploading directly");
        }
    }

    /// Whether this block is staged and may not be in the bucket yet.
    pub fn contains(&self, block: BlockKey) -> bool {
        self.list.contains(block)
    }

    /// Lets go of a block that is not wanted any more. One that is being uploaded is deleted after.
    pub async fn drop_block(&self, block: BlockKey) {
        // Before the list is complete, any block may be one of those that were left.
        if self.list.contains(block) || !self.is_listed.load(Ordering::Acquire) {
            self.forget(block);
            self.cache.unstage(block).await;
        }
    }

    fn forget(&self, block: BlockKey) {
        if self.list.remove(block) {
            self.changed.notify_waiters();
        }
    }

    /// Blocks that could not be staged.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// How long blocks were staged before their upload began, all together.
    pub fn delayed(&self) -> Duration {
        Duration::from_millis(self.delayed_millis.load(Ordering::Relaxed))
    }

    /// Waits until nothing is staged. Delays and hours do not count meanwhile.
    pub async fn flush(&self) {
        let _rush = self.list.rush();
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_listed.load(Ordering::Acquire) && self.list.is_empty() {
                return;
            }
            changed.await;
        }
    }

    fn is_open(&self) -> bool {
        let hours = self.rules.as_ref().and_then(|rules| rules.hours);
        self.list.is_rushed() || hours.is_none_or(|hours| hours.include((self.clock)()))
    }

    fn began(&self, since: Instant) {
        let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.delayed_millis.fetch_add(millis, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
