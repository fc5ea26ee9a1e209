//! Garbage: deleting data that nothing refers to, through the interface to the object store.
//!
//! `meta` does not know blocks or objects; the volume attaches a [`SliceStore`]. Every step leaves
//! a record until it is done, so a client may die between any two, and the hourly jobs find
//! whatever is left.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::error::{Error, Result};
use crate::meta::chunk_range::{ChunkKey, MAX_FILE_LENGTH};
use crate::meta::client::Meta;
use crate::meta::op::garbage::delete_chunk::DeleteChunk;
use crate::meta::op::garbage::delete_files::{DeleteFiles, DeletedFileChunks};
use crate::meta::op::garbage::drop_slice::{Abandon, DropDeletedFile, DropSlices};
use crate::meta::op::garbage::drop_sustained::DropSustained;
use crate::meta::record::{CHUNK_SIZE, Slice, SliceSize};
use crate::meta::{Ino, Sid, SliceId};

/// Small files whose data is deleted by one commit, and how many such groups at once.
const GROUP: usize = 100;
const GROUPS_AT_ONCE: usize = 8;
/// The most chunks of a small file.
const FEW_CHUNKS: u64 = 4;
/// Slice records removed by one commit.
const SLICES_PER_COMMIT: usize = 500;
/// Files that may wait for deletion; more are left to the job.
const MAX_WAITING_FILES: usize = 10_000;
/// Chunks past the length of a removed file that are always looked for.
const CHUNKS_PAST_END: u64 = 8;

#[async_trait]
pub trait SliceStore: Send + Sync {
    /// Deletes all objects of a slice; a missing object is no error.
    async fn delete(&self, slice: SliceSize) -> Result<()>;

    /// Reads the fragments (laid end to end, holes as zeros) and writes them as slice `id`.
    async fn rewrite(&self, fragments: &[Slice], id: SliceId, tier: u8) -> Result<()>;
}

/// Limits of concurrent deletions.
pub struct Garbage {
    waiting: Arc<Semaphore>,
    groups: Semaphore,
    slices: Semaphore,
    /// The background tasks of this client, including compactions.
    pub(in crate::meta::client) tasks: TaskTracker,
}

impl Garbage {
    pub fn new(max_deletes: usize) -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(MAX_WAITING_FILES)),
            groups: Semaphore::new(GROUPS_AT_ONCE),
            slices: Semaphore::new(max_deletes.min(Semaphore::MAX_PERMITS)),
            tasks: TaskTracker::new(),
        }
    }
}

impl Meta {
    /// Starts to delete the data of removed files and the objects of unreferenced slices. Never
    /// waits: files above the limit are left to the jobs.
    pub(in crate::meta::client) fn delete_in_background(
        &self,
        deleted: &[(Ino, u64)],
        unreferenced: Vec<SliceSize>,
    ) {
        for group in deleted.chunks(GROUP) {
            let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
            let waiting = Arc::clone(&self.garbage.waiting);
            let Ok(permits) = waiting.try_acquire_many_owned(count) else { break };
            let group = group.to_vec();
            self.spawn_background(async move |meta| {
                let Ok(_permit) = meta.garbage.groups.acquire().await else { return };
                meta.delete_group(&group).await;
                drop(permits);
            });
        }
        if !unreferenced.is_empty() {
            self.spawn_background(async move |meta| {
                meta.delete_slices(unreferenced).await;
            });
        }
    }

    /// Records that the last name of an open file is gone, so that the file is deleted when it is
    /// closed; deletes it at once if it has been closed meanwhile.
    pub(in crate::meta::client) fn delete_on_close(&self, ino: Ino) {
        if self.context.open.mark_removed(ino) {
            return;
        }
        let sid = self.context.sid();
        self.spawn_background(async move |meta| {
            if let Err(error) = meta.drop_sustained(sid, ino).await {
                warn!(ino = ino.0, %error, "cannot delete a removed file before the session ends");
            }
        });
    }

    /// Deletes a removed file that `sid` had open.
    pub(in crate::meta::client) async fn drop_sustained(&self, sid: Sid, ino: Ino) -> Result<()> {
        self.run(&DropSustained { sid, ino }).await
    }

    /// Waits until at most half of the allowed number of files wait for deletion. A caller that
    /// removes many files calls this between batches; otherwise most of their data would wait for
    /// the hourly job.
    pub(in crate::meta::client) async fn wait_for_deletions(&self) {
        let half = u32::try_from(MAX_WAITING_FILES / 2).unwrap_or(u32::MAX);
        // The semaphore is never closed, so this cannot fail.
        drop(self.garbage.waiting.acquire_many(half).await);
    }

    /// Waits until the deletions and compactions that this client has started are done.
    pub async fn idle(&self) {
        self.garbage.tasks.close();
        self.garbage.tasks.wait().await;
        self.garbage.tasks.reopen();
    }

    /// Deletes the data of removed files, the small ones together. What fails is left to the job.
    /// Returns the number of files.
    pub(in crate::meta::client) async fn delete_group(&self, files: &[(Ino, u64)]) -> u64 {
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
            // Deleted one by one, so that one damaged file does not block the others.
            Err(_) => alone.extend(small),
        }
        for (ino, length) in alone {
            match self.delete_file_data(ino, length).await {
                Ok(()) => done += 1,
                Err(Error::Interrupted) => return done,
                Err(error) => {
                    warn!(ino = ino.0, %error, "cannot delete the data of a removed file: the job will retry");
                }
            }
        }
        done
    }

    /// Deletes the data of small files by one commit; returns those that have too many chunks.
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
                remains.push(DeletedFileChunks { ino: *ino, length: *length, chunks });
            }
        }
        let done = self.run_with_receipts(&DeleteFiles { files: &remains }).await?;
        self.delete_slices(unreferenced(&done.output, &done.receipts)).await;
        Ok(left)
    }

    /// Deletes the data of a removed file: its chunks, the objects that nothing else refers to, and
    /// then its deletion record.
    pub async fn delete_file_data(&self, ino: Ino, length: u64) -> Result<()> {
        for index in self.chunks_left(ino, length).await? {
            if self.is_closing() {
                return Err(Error::Interrupted);
            }
            let done = self.run_with_receipts(&DeleteChunk { ino, index }).await?;
            self.delete_slices(unreferenced(&done.output, &done.receipts)).await;
        }
        self.run(&DropDeletedFile { ino, length }).await
    }

    /// Deletes a chunk whose node does not exist, and the objects that nothing else refers to.
    pub async fn delete_leaked_chunk(&self, ino: Ino, index: u32) -> Result<()> {
        let done = self.run_with_receipts(&DeleteChunk { ino, index }).await?;
        self.delete_slices(unreferenced(&done.output, &done.receipts)).await;
        Ok(())
    }

    /// The chunks of a removed file. A truncated file keeps chunks past its length, and a store may
    /// not list them. So the range is extended as long as chunks are found near its end.
    async fn chunks_left(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        let mut end = length.div_ceil(CHUNK_SIZE) + CHUNKS_PAST_END;
        loop {
            let indexes = self.engine.chunk_indexes(ino, end.saturating_mul(CHUNK_SIZE)).await?;
            let last = indexes.last().map_or(0, |last| u64::from(*last) + 1);
            if last + CHUNKS_PAST_END <= end || end.saturating_mul(CHUNK_SIZE) >= MAX_FILE_LENGTH {
                return Ok(indexes);
            }
            end = last + 2 * CHUNKS_PAST_END;
        }
    }

    /// Deletes the objects of unreferenced slices, then the records of those that succeeded; the
    /// job retries the others. Returns the number of deleted slices.
    pub async fn delete_slices(&self, slices: Vec<SliceSize>) -> u64 {
        let limit = self.context.options.max_deletes;
        let Some(store) = self.slice_store().filter(|_| limit > 0) else { return 0 };
        let store = &store;
        let gone = stream::iter(slices)
            .map(|slice| async move {
                let _permit = self.garbage.slices.acquire().await.ok()?;
                if self.is_closing() {
                    return None;
                }
                match store.delete(slice).await {
                    Ok(()) => Some(slice),
                    Err(error) => {
                        warn!(slice = slice.id.0, %error, "cannot delete the objects of a slice: the job will retry");
                        None
                    }
                }
            })
            .buffer_unordered(limit)
            .collect::<Vec<Option<SliceSize>>>()
            .await;
        let gone: Vec<SliceSize> = gone.into_iter().flatten().collect();
        let mut count = 0;
        for slices in gone.chunks(SLICES_PER_COMMIT) {
            match self.run(&DropSlices { slices }).await {
                Ok(()) => count += slices.len() as u64,
                Err(error) => {
                    let (slice, slices) = (slices[0].id.0, slices.len());
                    warn!(slice, slices, %error, "cannot remove slice records: the job will retry");
                }
            }
        }
        count
    }

    /// Records that a slice written for a chunk did not become part of it, so that its objects are
    /// deleted. Returns false if it did become part of it.
    pub(in crate::meta::client) async fn abandon(
        &self,
        slice: SliceSize,
        chunk: ChunkKey,
    ) -> Result<bool> {
        Ok(!self.engine.has_slice_ref(slice).await? && self.run(&Abandon { slice, chunk }).await?)
    }

    /// Spawns a deletion or a compaction.
    pub(in crate::meta::client) fn spawn_background<F>(&self, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(meta) = self.me.upgrade().filter(|_| !self.is_closing()) else { return };
        let task = self.garbage.tasks.track_future(work(meta));
        self.lifecycle.spawn(task);
    }
}

/// The released slices that have no reference left, by the receipts of their release.
pub(in crate::meta::client) fn unreferenced(
    released: &[SliceSize],
    receipts: &[i64],
) -> Vec<SliceSize> {
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
    fn slices_without_references_are_unreferenced() {
        let released = [slice(1), slice(2), slice(3), slice(3), slice(4)];
        assert_eq!(unreferenced(&released, &[0, 1, 0, -1, 7, 0]), [slice(1), slice(3)]);
    }

    #[test]
    fn without_receipts_no_slice_is_unreferenced() {
        assert_eq!(unreferenced(&[slice(1)], &[]), []);
    }
}
