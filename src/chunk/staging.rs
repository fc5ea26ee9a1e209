//! Staging (writeback): blocks count as stored once they are in a file, and are uploaded later.
//!
//! `close` does not wait for the disk. `fsync` does, and everything staged is synced soon after, in
//! groups ([`unsynced`]): only a crash of the machine within that time loses blocks.
//!
//! A block leaves the staging directory only after it has arrived in the bucket. After a crash, the
//! next run finds it and uploads it again, which is harmless if it was already there.

mod queue;
mod unsynced;
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
use queue::UploadQueue;
use unsynced::Unsynced;
pub use uploader::LoadedBlock;

/// How long to wait for a disk that does not respond.
const STAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// The staged blocks of one volume.
pub struct Staging {
    pub cache: Arc<VolumeCache>,
    /// `None` stages nothing, but still uploads blocks that an earlier run left.
    rules: Option<Writeback>,
    queue: UploadQueue,
    unsynced: Unsynced,
    /// Whether the blocks that an earlier run left are in the queue.
    is_listed: AtomicBool,
    /// Notified when a block becomes due or leaves the queue.
    changed: Notify,
    /// Returns the hour of the day.
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
            queue: UploadQueue::new(delay),
            unsynced: Unsynced::default(),
            is_listed: AtomicBool::new(false),
            changed: Notify::new(),
            clock: Box::new(clock),
            delayed_millis: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    /// Whether a block of this size should be staged.
    pub fn should_stage(&self, size: u32) -> bool {
        let threshold = self.rules.as_ref().map(|rules| rules.threshold);
        threshold.is_some_and(|threshold| threshold.is_none_or(|limit| size < limit))
    }

    /// Stages a block. After an error, the caller uploads it.
    pub async fn stage(&self, block: BlockKey, body: &Bytes, tier: u8) -> Result<()> {
        let staged = tokio::time::timeout(STAGE_TIMEOUT, self.cache.stage(block, body, tier)).await;
        staged.unwrap_or_else(|_| {
            Err(Error::Storage {
                place: "cache".to_owned(),
                action: "stage",
                key: format!("{block:?}"),
                cause: "the disk does not respond".to_owned(),
            })
        })?;
        self.unsynced.add(block);
        Ok(())
    }

    /// Counts and logs a block that could not be staged.
    pub fn count_failure(&self, error: &Error) {
        // Only the first one is a warning: a full disk would otherwise fill the log as well.
        if self.errors.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!(%error, "cannot stage a block; uploading it directly");
        } else {
            debug!(%error, "cannot stage a block; uploading it directly");
        }
    }

    /// Whether this block is staged and may not be in the bucket yet.
    pub fn contains(&self, block: BlockKey) -> bool {
        self.queue.contains(block)
    }

    /// Discards a block that is no longer needed. If it is being uploaded, its object is deleted
    /// afterwards.
    pub async fn discard(&self, block: BlockKey) {
        // Before the queue is complete, any block may be one that an earlier run left.
        if self.queue.contains(block) || !self.is_listed.load(Ordering::Acquire) {
            self.forget(block);
            self.cache.unstage(block).await;
        }
    }

    fn forget(&self, block: BlockKey) {
        self.unsynced.remove(block);
        if self.queue.remove(block) {
            self.changed.notify_waiters();
        }
    }

    /// Returns the number of blocks that could not be staged.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns how long blocks were staged before their upload began, all together.
    pub fn total_delay(&self) -> Duration {
        Duration::from_millis(self.delayed_millis.load(Ordering::Relaxed))
    }

    /// Waits until nothing is staged. Delays and upload hours are ignored meanwhile.
    pub async fn flush(&self) {
        let _flushing = self.queue.start_flush();
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_listed.load(Ordering::Acquire) && self.queue.is_empty() {
                return;
            }
            changed.await;
        }
    }

    fn may_upload(&self) -> bool {
        let hours = self.rules.as_ref().and_then(|rules| rules.hours);
        self.queue.is_flushing() || hours.is_none_or(|hours| hours.include((self.clock)()))
    }

    fn add_delay(&self, since: Instant) {
        let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.delayed_millis.fetch_add(millis, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
