//! Blocks that are no longer in the accounting and whose files must be removed. One worker removes
//! them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::volume_disk::VolumeDisk;
use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// If more removals wait, the caller removes the files itself.
const MAX_WAITING: usize = 10_000;

/// A block and the disks that hold its files; the flag tells whether it also has a staged file.
pub struct Removal {
    pub block: BlockKey,
    pub volume_disks: Vec<(VolumeDisk, bool)>,
}

impl Removal {
    fn run(&self) {
        for (volume_disk, staged) in &self.volume_disks {
            volume_disk.remove(self.block, *staged);
        }
    }
}

#[derive(Default)]
pub struct RemovalQueue {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Removal>,
    has_worker: bool,
}

impl RemovalQueue {
    /// Queues the removal of a block's files.
    pub fn add(self: &Arc<Self>, removal: Removal, tasks: &TaskTracker, runtime: &Handle) {
        let mut queue = self.lock();
        if queue.waiting.len() >= MAX_WAITING {
            drop(queue);
            return removal.run();
        }
        queue.waiting.push_back(removal);
        if !queue.has_worker {
            queue.has_worker = true;
            let removal_queue = Arc::clone(self);
            tasks.spawn_blocking_on(move || removal_queue.work(), runtime);
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
