//! The drain: drafts that still take writes, of all files, in the order of their creation.
//!
//! They are frozen when they are old or idle, and the oldest ones earlier if memory is short.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::content::Content;
use super::file::File;
use crate::sync::{Mutex, MutexGuard};

/// A draft is frozen this long after its begin: so much can be lost with the machine.
pub const MAX_AGE: Duration = Duration::from_secs(5);
/// A draft that is not written to for this long is frozen.
pub const MAX_IDLE: Duration = Duration::from_secs(1);
/// Between two looks at what is due, so that many drafts do not mean many looks.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Drain {
    numbers: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<File>>>,
    /// Rings when there is a draft after there was none.
    bell: Arc<Notify>,
}

impl Drain {
    /// A number for a new draft.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, number: u64, file: &Arc<File>) {
        let mut open = self.lock();
        if open.is_empty() {
            self.bell.notify_one();
        }
        open.insert(number, Arc::clone(file));
    }

    /// Drafts that take no writes any more. Their files must be held by the caller: the last one to
    /// let go of a file must not do so in here.
    pub fn remove(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut open = self.lock();
        for number in numbers {
            open.remove(&number);
        }
    }

    /// Freezes the oldest drafts that together hold `wanted` bytes, or all. Answers how many bytes
    /// come back once they are stored.
    pub fn press(&self, wanted: usize) -> usize {
        let (mut freed, mut last) = (0, None);
        while freed < wanted {
            let Some((number, file)) = self.next(last) else { break };
            freed += file.freeze(number);
            last = Some(number);
        }
        freed
    }

    /// Freezes what is due; answers when to look again, none if there is nothing left.
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

    fn next(&self, last: Option<u64>) -> Option<(u64, Arc<File>)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let open = self.lock();
        open.range((from, Bound::Unbounded)).next().map(|(n, file)| (*n, Arc::clone(file)))
    }

    /// Wakes the task, so that it sees that its content is gone.
    pub fn end(&self) {
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<File>>> {
        self.open.lock()
    }
}

/// Freezes what is due for as long as the content lives.
pub async fn drain(content: Weak<Content>) {
    loop {
        let now = Instant::now();
        let (next, bell) = match content.upgrade() {
            Some(content) => (content.drain.freeze_due(now), Arc::clone(&content.drain.bell)),
            None => return,
        };
        match next {
            Some(at) => sleep_until(at.max(now + PAUSE)).await,
            None => bell.notified().await,
        }
    }
}
