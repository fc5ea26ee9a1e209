//! Blocks that are off the books and whose files have yet to go: one worker removes them in turn.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::shelf::Shelf;
use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// More of them, and whoever removes one does it himself.
const MAX_WAITING: usize = 10_000;

/// A block, and where its files are; staged ones have another.
pub struct Removal {
    pub block: BlockKey,
    pub shelves: Vec<(Shelf, bool)>,
}

impl Removal {
    fn run(&self) {
        for (shelf, staged) in &self.shelves {
            shelf.remove(self.block, *staged);
        }
    }
}

#[derive(Default)]
pub struct Removals {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Removal>,
    has_worker: bool,
}

impl Removals {
    /// Has the files of a block removed soon.
    pub fn add(self: &Arc<Self>, removal: Removal, tasks: &TaskTracker, runtime: &Handle) {
        let mut queue = self.lock();
        if queue.waiting.len() >= MAX_WAITING {
            drop(queue);
            return removal.run();
        }
        queue.waiting.push_back(removal);
        if !queue.has_worker {
            queue.has_worker = true;
            let removals = Arc::clone(self);
            tasks.spawn_blocking_on(move || removals.work(), runtime);
        }
    }

    fn work(&self) {
        while let Some(removal) = self.next() {
            removal.run();
        }
    }

    fn next(&self) -> Option<Removal> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        queue.has_worker = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}
