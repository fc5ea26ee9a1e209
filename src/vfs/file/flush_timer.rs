//! When to freeze drafts: tracks all drafts of a mount that accept writes, in the order of
//! creation.
//!
//! A draft is frozen when it is old or idle, and the oldest ones earlier if memory is short.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::content::Content;
use super::open_file::OpenFile;
use crate::sync::{Mutex, MutexGuard};

/// A draft is frozen this long after its creation: the most data that a crash can lose.
pub const MAX_AGE: Duration = Duration::from_secs(5);
/// A draft that is not written to for this long is frozen.
pub const MAX_IDLE: Duration = Duration::from_secs(1);
/// Pause between two scans, so that many drafts do not cause many scans.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct FlushTimer {
    numbers: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<OpenFile>>>,
    /// Notified when there is a draft after there was none.
    wake: Arc<Notify>,
}

impl FlushTimer {
    /// Returns a number for a new draft.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, number: u64, file: &Arc<OpenFile>) {
        let mut open = self.lock();
        if open.is_empty() {
            self.wake.notify_one();
        }
        open.insert(number, Arc::clone(file));
    }

    /// Removes drafts that accept no more writes. The caller must hold their files: dropping the
    /// last reference to a file in here would deadlock.
    pub fn remove(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut open = self.lock();
        for number in numbers {
            open.remove(&number);
        }
    }

    /// Freezes the oldest drafts that together hold `wanted` bytes, or all. Returns how many bytes
    /// are released once they are stored.
    pub fn flush_oldest(&self, wanted: usize) -> usize {
        let (mut freed, mut last) = (0, None);
        while freed < wanted {
            let Some((number, file)) = self.next(last) else { break };
            freed += file.freeze(number);
            last = Some(number);
        }
        freed
    }

    /// Freezes the drafts that are due. Returns when to scan again, or `None` if none are left.
    fn freeze_due(&self, now: Instant) -> Option<Instant> {
        let (mut earliest, mut last) = (None::<Instant>, None);
        while let Some((number, file)) = self.next(last) {
            if let Some(due) = file.freeze_due(number, now) {
                earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
            }
            last = Some(number);
        }
        earliest
    }

    fn next(&self, last: Option<u64>) -> Option<(u64, Arc<OpenFile>)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let open = self.lock();
        open.range((from, Bound::Unbounded)).next().map(|(n, file)| (*n, Arc::clone(file)))
    }

    /// Wakes the task, so that it notices that its content is gone.
    pub fn stop(&self) {
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<OpenFile>>> {
        self.open.lock()
    }
}

/// Freezes drafts that are due for as long as the content lives.
pub async fn freeze_when_due(content: Weak<Content>) {
    loop {
        let now = Instant::now();
        let (next, wake) = match content.upgrade() {
            Some(content) => {
                (content.flush_timer.freeze_due(now), Arc::clone(&content.flush_timer.wake))
            }
            None => return,
        };
        match next {
            Some(at) => sleep_until(at.max(now + SCAN_INTERVAL)).await,
            None => wake.notified().await,
        }
    }
}
