//! Garbage: data that nothing refers to any more, and what metadata asks of the data side.
//!
//! `meta` does not know blocks or objects; the volume gives it something that does. Every step
//! leaves a record of what is still to do until it is done, so a client may die between any two,
//! and whatever is dropped here is found again by the hourly jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::op::delete_chunk::DeleteChunk;
use crate::meta::op::delete_files::{DeleteFiles, Remains};
use crate::meta::op::drop_slice::{Abandon, DropDeletedFile, DropSlices};
use crate::meta::op::drop_sustained::DropSustained;
use crate::meta::op::zeros::MAX_LENGTH;
use crate::meta::record::{CHUNK_SIZE, Slice, SliceSize};
use crate::meta::{Ino, Sid, SliceId};

/// Small files whose data is deleted by one commit, and how many such groups at once.
const GROUP: usize = 100;
const GROUPS_AT_ONCE: usize = 8;
/// Chunks of a small file.
const FEW_CHUNKS: u64 = 4;
/// Slices dropped by one commit.
const SLICES: usize = 500;
/// Files that may wait for that; more are left to the job.
const FILES_WAITING: usize = 10_000;
/// Chunks past the length of a removed file that are looked for in any case.
const CHUNKS_PAST_END: u64 = 8;

#[async_trait]
pub trait SliceStore: Send + Sync {
    /// Deletes every object of the slice; one that is not there is fine.
    async fn delete(&self, slice: SliceSize) -> Result<()>;

    /// Reads the fragments (laid end to end, holes as zeros) and writes them as slice `id`.
    async fn rewrite(&self, fragments: &[Slice], id: SliceId, tier: u8) -> Result<()>;
}

/// Bounds of the work on garbage.
pub struct Garbage {
    waiting: Arc<Semaphore>,
    groups: Semaphore,
    slices: Semaphore,
    /// What this client has under way, compactions included.
    pub(super) work: TaskTracker,
}

impl Garbage {
    pub fn new(max_deletes: usize) -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(FILES_WAITING)),
            groups: Semaphore::new(GROUPS_AT_ONCE),
            slices: Semaphore::new(max_deletes.min(Semaphore::MAX_PERMITS)),
            work: TaskTracker::new(),
        }
    }
}

impl Meta {
    /// Starts to delete the data of removed files and the objects of dead slices. Never waits: what
    /// does not fit is left to the jobs.
    pub(in crate::meta) fn collect(&self, deleted: &[(Ino, u64)], dead: Vec<SliceSize>) {
        for group in deleted.chunks(GROUP) {
            let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
            let waiting = Arc::clone(&self.garbage.waiting);
            let Ok(place) = waiting.try_acquire_many_owned(count) else { break };
            let group = group.to_vec();
            self.work(async move |meta| {
                let Ok(_turn) = meta.garbage.groups.acquire().await else { return };
                meta.delete_group(&group).await;
                drop(place);
            });
        }
        if !dead.is_empty() {
            self.work(async move |meta| {
                meta.delete_slices(dead).await;
            });
        }
    }

    /// Takes note that the last name of an open file is gone, so that the file goes when it is
    /// closed; at once if it has been closed meanwhile.
    pub(in crate::meta) fn sustain(&self, ino: Ino) {
        if self.facts.open.remove(ino) {
            return;
        }
        let sid = self.facts.sid();
        self.work(async move |meta| {
            if let Err(error) = meta.drop_sustained(sid, ino).await {
                warn!(ino = ino.0, %error, "a removed file stays until the session ends");
            }
        });
    }

    /// Lets a removed file go that `sid` had open.
    pub(super) async fn drop_sustained(&self, sid: Sid, ino: Ino) -> Result<()> {
        self.run(&DropSustained { sid, ino }).await
    }

    /// Waits until there is room to collect another batch of removed files. Who removes many calls
    /// this between batches; otherwise most of their data would wait for the hourly job.
    pub(super) async fn wait_for_collection(&self) {
        let half = u32::try_from(FILES_WAITING / 2).unwrap_or(u32::MAX);
        // Never closed, so an error cannot be.
        drop(self.garbage.waiting.acquire_many(half).await);
    }

    /// Waits until the deletions and compactions that this client has started are done.
    pub async fn idle(&self) {
        self.garbage.work.close();
        self.garbage.work.wait().await;
        self.garbage.work.reopen();
    }

    /// Deletes the data of removed files, the small ones together. What fails is left to the job.
    pub(super) async fn delete_group(&self, files: &[(Ino, u64)]) -> u64 {
        let is_small = |file: &&(Ino, u64)| file.1.div_ceil(CHUNK_SIZE) <= FEW_CHUNKS;
        let (small, large): (Vec<_>, Vec<_>) = files.iter().partition(is_small);
        let mut alone: Vec<(Ino, u64)> = large;
        let mut done = 0;
        match self.delete_small(&small).await {
            Ok(left) => {
                done += (small.len() - left.len()) as u64;
                alone.extend(left);
            }
            Err(Error::Interrupted) => return done,
            // One by one, those that are sound go.
            Err(_) => alone.extend(small),
        }
        for (ino, length) in alone {
            match self.delete_file_data(ino, length).await {
                Ok(()) => done += 1,
                Err(Error::Interrupted) => return done,
                Err(error) => warn!(ino = ino.0, %error, "the data of a removed file stays"),
            }
        }
        done
    }

    /// Deletes the data of small files by one commit; answers those that are not small after all.
    async fn delete_small(&self, files: &[(Ino, u64)]) -> Result<Vec<(Ino, u64)>> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_closing() {
            return Err(Error::Interrupted);
        }
        let end = |length: u64| length.div_ceil(CHUNK_SIZE) + CHUNKS_PAST_END;
        let asked: Vec<_> = files.iter().map(|(ino, len)| (*ino, end(*len) * CHUNK_SIZE)).collect();
        let (mut remains, mut left) = (Vec::new(), Vec::new());
        let found = self.engine.chunk_indexes_of(&asked).await?;
        for ((ino, length), chunks) in files.iter().zip(found) {
            let last = chunks.last().map_or(0, |last| u64::from(*last) + 1);
            let has_more = last + CHUNKS_PAST_END > end(*length);
            if has_more || chunks.len() as u64 > FEW_CHUNKS {
                left.push((*ino, *length));
            } else {
                remains.push(Remains { ino: *ino, length: *length, chunks });
            }
        }
        let done = self.run_counted(&DeleteFiles { files: &remains }).await?;
        self.delete_slices(dead(&done.output, &done.receipts)).await;
        Ok(left)
    }

    /// Deletes the data of a removed file: its chunks, the objects that nothing else refers to, and
    /// then the record that the file is to be deleted.
    pub async fn delete_file_data(&self, ino: Ino, length: u64) -> Result<()> {
        for index in self.chunks_left(ino, length).await? {
            if self.is_closing() {
                return Err(Error::Interrupted);
            }
            let done = self.run_counted(&DeleteChunk { ino, index }).await?;
            self.delete_slices(dead(&done.output, &done.receipts)).await;
        }
        self.run(&DropDeletedFile { ino, length }).await
    }

    /// The chunks of a removed file. One that was cut keeps chunks past its length, and a store may
    /// not know which: they are looked for a little further, and on as long as there are some.
    async fn chunks_left(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        let mut end = length.div_ceil(CHUNK_SIZE) + CHUNKS_PAST_END;
        loop {
            let indexes = self.engine.chunk_indexes(ino, end.saturating_mul(CHUNK_SIZE)).await?;
            let last = indexes.last().map_or(0, |last| u64::from(*last) + 1);
            if last + CHUNKS_PAST_END <= end || end.saturating_mul(CHUNK_SIZE) >= MAX_LENGTH {
                return Ok(indexes);
            }
            end = last + 2 * CHUNKS_PAST_END;
        }
    }

    /// Deletes objects of slices without references, then the records of those that are gone; one
    /// that fails keeps its record and is tried again by the job. Answers how many went.
    pub(super) async fn delete_slices(&self, slices: Vec<SliceSize>) -> u64 {
        let limit = self.facts.options.max_deletes;
        let Some(store) = self.slice_store().filter(|_| limit > 0) else { return 0 };
        let store = &store;
        let gone = stream::iter(slices)
            .map(|slice| async move {
                let _turn = self.garbage.slices.acquire().await.ok()?;
                if self.is_closing() {
                    return None;
                }
                match store.delete(slice).await {
                    Ok(()) => Some(slice),
                    Err(error) => {
                        warn!(slice = slice.id.0, %error, "a dead slice stays for now");
                        None
                    }
                }
            })
            .buffer_unordered(limit)
            .collect::<Vec<Option<SliceSize>>>()
            .await;
        let gone: Vec<SliceSize> = gone.into_iter().flatten().collect();
        let mut count = 0;
        for slices in gone.chunks(SLICES) {
            match self.run(&DropSlices { slices }).await {
                Ok(()) => count += slices.len() as u64,
                Err(error) => {
                    let (slice, slices) = (slices[0].id.0, slices.len());
                    warn!(slice, slices, %error, "dead slices stay for now");
                }
            }
        }
        count
    }

    /// Records that a slice written for a chunk did not become part of it, so that its objects go.
    /// Answers false if it did, after all.
    pub(super) async fn abandon(&self, slice: SliceSize, chunk: (Ino, u32)) -> Result<bool> {
        Ok(!self.engine.has_slice_ref(slice).await? && self.run(&Abandon { slice, chunk }).await?)
    }

    /// Runs work on garbage or compaction in the background.
    pub(super) fn work<F>(&self, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(meta) = self.me.upgrade().filter(|_| !self.is_closing()) else { return };
        let task = self.garbage.work.track_future(work(meta));
        self.life.spawn(task);
    }
}

/// Slices that were released and have no reference left, by the receipts of their release.
pub(super) fn dead(released: &[SliceSize], receipts: &[i64]) -> Vec<SliceSize> {
    let left = released.iter().zip(receipts).filter(|(_, left)| **left <= 0);
    left.map(|(slice, _)| *slice).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(id: u64) -> SliceSize {
        SliceSize { id: SliceId(id), size: 1 }
    }

    #[test]
    fn slices_are_dead_when_no_reference_is_left() {
        let released = [slice(1), slice(2), slice(3), slice(3), slice(4)];
        assert_eq!(dead(&released, &[0, 1, 0, -1, 7, 0]), [slice(1), slice(3)]);
    }

    #[test]
    fn without_receipts_nothing_is_known_to_be_dead() {
        assert_eq!(dead(&[slice(1)], &[]), []);
    }
}
