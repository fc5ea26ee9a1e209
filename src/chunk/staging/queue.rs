//! The upload queue of staged blocks: when each is due, and which are being uploaded.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// The retry delay after a first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

pub struct UploadQueue {
    delay: Duration,
    flushes: AtomicUsize,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    all: HashMap<BlockKey, Entry>,
    /// Waiting blocks, in the order in which they become due.
    waiting: BTreeSet<(Instant, BlockKey)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    since: Instant,
    failures: u32,
    /// `None` while the block is being uploaded.
    due: Option<Instant>,
}

/// While it exists, uploads are not delayed.
pub struct FlushGuard<'a>(&'a UploadQueue);

impl UploadQueue {
    pub fn new(delay: Duration) -> Self {
        Self { delay, flushes: AtomicUsize::new(0), blocks: Mutex::default() }
    }

    /// Adds a block that waits for its upload.
    pub fn add(&self, block: BlockKey) {
        let since = Instant::now();
        let delay = if self.is_flushing() { Duration::ZERO } else { self.delay };
        self.lock().put(block, Entry { since, failures: 0, due: Some(since + delay) });
    }

    /// Adds a block that an earlier run left, due at once.
    pub fn add_leftover(&self, block: BlockKey) {
        let mut blocks = self.lock();
        if !blocks.all.contains_key(&block) {
            let since = Instant::now();
            blocks.put(block, Entry { since, failures: 0, due: Some(since) });
        }
    }

    /// Adds a block that is being uploaded.
    pub fn add_uploading(&self, block: BlockKey) {
        self.lock().put(block, Entry { since: Instant::now(), failures: 0, due: None });
    }

    /// Returns the block that is due first, and when. It stays in the queue.
    pub fn first(&self) -> Option<(Instant, BlockKey)> {
        self.lock().waiting.first().copied()
    }

    /// Marks a waiting block as being uploaded. Returns when it was staged, or `None` if it no
    /// longer waits.
    pub fn start_upload(&self, block: BlockKey) -> Option<Instant> {
        let mut blocks = self.lock();
        let entry = blocks.all.get_mut(&block)?;
        let (due, since) = (entry.due.take()?, entry.since);
        blocks.waiting.remove(&(due, block));
        Some(since)
    }

    /// Puts a block back whose upload failed. Returns whether this was its first failure.
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

    /// Removes a block. Returns whether it was in the queue.
    pub fn remove(&self, block: BlockKey) -> bool {
        let mut blocks = self.lock();
        let Some(entry) = blocks.all.remove(&block) else { return false };
        if let Some(due) = entry.due {
            blocks.waiting.remove(&(due, block));
        }
        true
    }

    pub fn is_empty(&self) -> bool {
        self.lock().all.is_empty()
    }

    /// Makes all blocks due now, except those that failed, which keep their delay.
    pub fn start_flush(&self) -> FlushGuard<'_> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let now = Instant::now();
        let mut blocks = self.lock();
        let due_later: Vec<_> = blocks.waiting.iter().map(|(_, block)| *block).collect();
        for block in due_later {
            if let Some(entry) = blocks.all.get(&block).copied().filter(|one| one.failures == 0) {
                blocks.put(block, Entry { due: Some(now), ..entry });
            }
        }
        FlushGuard(self)
    }

    pub fn is_flushing(&self) -> bool {
        self.flushes.load(Ordering::SeqCst) > 0
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock()
    }
}

impl Blocks {
    fn put(&mut self, block: BlockKey, entry: Entry) {
        if let Some(due) = self.all.insert(block, entry).and_then(|old| old.due) {
            self.waiting.remove(&(due, block));
        }
        if let Some(due) = entry.due {
            self.waiting.insert((due, block));
        }
    }
}

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        self.0.flushes.fetch_sub(1, Ordering::SeqCst);
    }
}
