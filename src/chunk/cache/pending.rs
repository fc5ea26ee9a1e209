//! Blocks on their way to a disk: readable, bounded in bytes, written in the order they came.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::area::Area;
use super::ledger::AreaId;
use crate::chunk::BlockKey;

/// A block to be written. The ticket tells it from a later one of the same name.
#[derive(Clone)]
pub struct Job {
    pub area: Arc<Area>,
    pub block: BlockKey,
    pub body: Bytes,
    ticket: u64,
}

#[derive(Default)]
pub struct Pending {
    bodies: HashMap<(AreaId, BlockKey), (u64, Bytes)>,
    order: VecDeque<Job>,
    bytes: usize,
    next: u64,
    /// Those that are at work on it.
    writers: usize,
}

impl Pending {
    pub fn find(&self, area: AreaId, block: BlockKey) -> Option<&Bytes> {
        self.bodies.get(&(area, block)).map(|(_, body)| body)
    }

    /// Takes a block; false if that would be more than `limit` bytes.
    pub fn push(&mut self, area: &Arc<Area>, block: BlockKey, body: Bytes, limit: usize) -> bool {
        if self.bytes + body.len() > limit {
            return false;
        }
        self.next += 1;
        let ticket = self.next;
        self.bytes += body.len();
        self.bodies.insert((area.id, block), (ticket, body.clone()));
        self.order.push_back(Job { area: Arc::clone(area), block, body, ticket });
        true
    }

    /// Forgets a block. If it is being written, [`Pending::finish`] will say so.
    pub fn cancel(&mut self, area: AreaId, block: BlockKey) {
        self.bodies.remove(&(area, block));
    }

    /// Whether one more writer should start; it counts from now on.
    pub fn wants_writer(&mut self, max: usize) -> bool {
        let wanted = self.writers < max && self.writers < self.order.len();
        self.writers += usize::from(wanted);
        wanted
    }

    /// The next block for a writer. If there is none, the writer is done and no longer counts.
    pub fn next(&mut self) -> Option<Job> {
        while let Some(job) = self.order.pop_front() {
            if self.is_current(&job) {
                return Some(job);
            }
            self.bytes -= job.body.len();
        }
        self.writers -= 1;
        None
    }

    /// Ends a job; false if it was cancelled in the meantime.
    pub fn finish(&mut self, job: &Job) -> bool {
        self.bytes -= job.body.len();
        let current = self.is_current(job);
        if current {
            self.bodies.remove(&(job.area.id, job.block));
        }
        current
    }

    pub fn is_idle(&self) -> bool {
        self.writers == 0
    }

    /// Lets no writer start, as if the disk did not answer.
    #[cfg(test)]
    pub fn hold(&mut self) {
        self.writers = usize::MAX / 2;
    }

    /// As one writer would have it that starts now.
    #[cfg(test)]
    pub fn release(&mut self) {
        self.writers = 1;
    }

    /// Blocks and bytes of one volume.
    pub fn holding(&self, area: AreaId) -> (u64, u64) {
        let of = self.bodies.iter().filter(|((of, _), _)| *of == area);
        of.fold((0, 0), |(blocks, bytes), (_, (_, body))| (blocks + 1, bytes + body.len() as u64))
    }

    fn is_current(&self, job: &Job) -> bool {
        let known = self.bodies.get(&(job.area.id, job.block));
        known.is_some_and(|(ticket, _)| *ticket == job.ticket)
    }
}
