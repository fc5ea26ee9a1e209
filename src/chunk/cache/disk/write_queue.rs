//! Blocks waiting to be written to a disk: readable, limited in bytes, written in order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::volume_dir::VolumeDir;
use crate::chunk::BlockKey;
use crate::chunk::cache::accounting::AccountId;

/// A block to be written. The number distinguishes it from a later write of the same block.
#[derive(Clone)]
pub struct PendingWrite {
    pub dir: Arc<VolumeDir>,
    pub block: BlockKey,
    pub body: Bytes,
    number: u64,
}

#[derive(Default)]
pub struct WriteQueue {
    bodies: HashMap<(AccountId, BlockKey), (u64, Bytes)>,
    order: VecDeque<PendingWrite>,
    bytes: usize,
    next: u64,
    /// Running writers.
    writers: usize,
}

impl WriteQueue {
    pub fn find(&self, id: AccountId, block: BlockKey) -> Option<&Bytes> {
        self.bodies.get(&(id, block)).map(|(_, body)| body)
    }

    /// Queues a block. Returns false if the queue would exceed `limit` bytes.
    pub fn push(
        &mut self,
        dir: &Arc<VolumeDir>,
        block: BlockKey,
        body: Bytes,
        limit: usize,
    ) -> bool {
        if self.bytes + body.len() > limit {
            return false;
        }
        self.next += 1;
        let number = self.next;
        self.bytes += body.len();
        self.bodies.insert((dir.id, block), (number, body.clone()));
        self.order.push_back(PendingWrite { dir: Arc::clone(dir), block, body, number });
        true
    }

    /// Cancels the write of a block. If it is being written, [`WriteQueue::finish`] reports that.
    pub fn cancel(&mut self, id: AccountId, block: BlockKey) {
        self.bodies.remove(&(id, block));
    }

    /// Whether one more writer should start. If so, it is counted from now on.
    pub fn wants_writer(&mut self, max: usize) -> bool {
        let wanted = self.writers < max && self.writers < self.order.len();
        self.writers += usize::from(wanted);
        wanted
    }

    /// Returns the next block to write. After `None`, the writer must end and is no longer counted.
    pub fn next(&mut self) -> Option<PendingWrite> {
        while let Some(write) = self.order.pop_front() {
            if self.is_current(&write) {
                return Some(write);
            }
            self.bytes -= write.body.len();
        }
        self.writers -= 1;
        None
    }

    /// Ends a write. Returns false if it was cancelled meanwhile.
    pub fn finish(&mut self, write: &PendingWrite) -> bool {
        self.bytes -= write.body.len();
        let current = self.is_current(write);
        if current {
            self.bodies.remove(&(write.dir.id, write.block));
        }
        current
    }

    pub fn is_idle(&self) -> bool {
        self.writers == 0
    }

    /// Lets no writer start, as if the disk hung.
    #[cfg(test)]
    pub fn hold(&mut self) {
        self.writers = usize::MAX / 2;
    }

    /// Pretends that one writer has just started.
    #[cfg(test)]
    pub fn release(&mut self) {
        self.writers = 1;
    }

    /// Returns the blocks and bytes of one volume.
    pub fn usage(&self, id: AccountId) -> (u64, u64) {
        let of = self.bodies.iter().filter(|((of, _), _)| *of == id);
        of.fold((0, 0), |(blocks, bytes), (_, (_, body))| (blocks + 1, bytes + body.len() as u64))
    }

    fn is_current(&self, write: &PendingWrite) -> bool {
        let known = self.bodies.get(&(write.dir.id, write.block));
        known.is_some_and(|(number, _)| *number == write.number)
    }
}
