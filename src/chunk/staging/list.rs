//! The list of staged blocks: which is due when, and which is on its way.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// The pause after a first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

pub struct List {
    delay: Duration,
    rushes: AtomicUsize,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    all: HashMap<BlockKey, Entry>,
    /// Those that wait, in the order in which they become due.
    queue: BTreeSet<(Instant, BlockKey)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    since: Instant,
    failures: u32,
    /// None while it is being uploaded.
    due: Option<Instant>,
}

/// While it lives, nothing is delayed.
pub struct Rush<'a>(&'a List);

impl List {
    pub fn new(delay: Duration) -> Self {
        Self { delay, rushes: AtomicUsize::new(0), blocks: Mutex::default() }
    }

    /// Adds a block that waits for its upload.
    pub fn add(&self, block: BlockKey) {
        let since = Instant::now();
        let delay = if self.is_rushed() { Duration::ZERO } else { self.delay };
        self.lock().put(block, Entry { since, failures: 0, due: Some(since + delay) });
    }

    /// Adds a block that an earlier run has left. It was delayed enough.
    pub fn add_leftover(&self, block: BlockKey) {
        let mut blocks = self.lock();
        if !blocks.all.contains_key(&block) {
            let since = Instant::now();
            blocks.put(block, Entry { since, failures: 0, due: Some(since) });
        }
    }

    /// Adds a block that is being uploaded.
    pub fn add_begun(&self, block: BlockKey) {
        self.lock().put(block, Entry { since: Instant::now(), failures: 0, due: None });
    }

    /// The block that is due first, and when; it stays in the list.
    pub fn first(&self) -> Option<(Instant, BlockKey)> {
        self.lock().queue.first().copied()
    }

    /// Marks a block that waits as being uploaded; answers since when it is staged, or none if it
    /// does not wait any more.
    pub fn begin(&self, block: BlockKey) -> Option<Instant> {
        let mut blocks = self.lock();
        let entry = blocks.all.get_mut(&block)?;
        let (due, since) = (entry.due.take()?, entry.since);
        blocks.queue.remove(&(due, block));
        Some(since)
    }

    /// Puts a block back whose upload failed. Answers whether that was its first failure.
    pub fn failed(&self, block: BlockKey) -> bool {
        let mut blocks = self.lock();
        let Some(mut entry) = blocks.all.get(&block).copied() else { return false };
        let pause = FIRST_PAUSE.saturating_mul(1 << entry.failures.min(10)).min(LONGEST_PAUSE);
        entry.failures += 1;
        entry.due = Some(Instant::now() + pause);
        blocks.put(block, entry);
        entry.failures == 1
    }

    pub fn contains(&self, block: BlockKey) -> bool {
        self.lock().all.contains_key(&block)
    }

    /// Answers whether it was there.
    pub fn remove(&self, block: BlockKey) -> bool {
        let mut blocks = self.lock();
        let Some(entry) = blocks.all.remove(&block) else { return false };
        if let Some(due) = entry.due {
            blocks.queue.remove(&(due, block));
        }
        true
    }

    pub fn is_empty(&self) -> bool {
        self.lock().all.is_empty()
    }

    /// Makes everything due now but what has failed, which keeps its pause.
    pub fn rush(&self) -> Rush<'_> {
        self.rushes.fetch_add(1, Ordering::SeqCst);
        let now = Instant::now();
        let mut blocks = self.lock();
        let waiting: Vec<_> = blocks.queue.iter().map(|(_, block)| *block).collect();
        for block in waiting {
            if let Some(entry) = blocks.all.get(&block).copied().filter(|one| one.failures == 0) {
                blocks.put(block, Entry { due: Some(now), ..entry });
            }
        }
        Rush(self)
    }

    pub fn is_rushed(&self) -> bool {
        self.rushes.load(Ordering::SeqCst) > 0
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock()
    }
}

impl Blocks {
    fn put(&mut self, block: BlockKey, entry: Entry) {
        if let Some(due) = self.all.insert(block, entry).and_then(|old| old.due) {
            self.queue.remove(&(due, block));
        }
        if let Some(due) = entry.due {
            self.queue.insert((due, block));
        }
    }
}

impl Drop for Rush<'_> {
    fn drop(&mut self) {
        self.0.rushes.fetch_sub(1, Ordering::SeqCst);
    }
}
