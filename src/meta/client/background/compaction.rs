//! Compaction: rewrites a chunk of many slice records as one slice.

use std::collections::HashSet;

use tokio::sync::Notify;
use tracing::warn;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::chunk_range::ChunkKey;
use crate::meta::client::Meta;
use crate::meta::client::background::garbage::unreferenced;
use crate::meta::client::run::Completed;
use crate::meta::op::content::read::{Chunk, Read};
use crate::meta::op::garbage::compact::{Compact, Compacted};
use crate::meta::record::{Compaction, plan_compaction};
use crate::meta::record::{Slice, SliceSize};
use crate::sync::{Mutex, MutexGuard};

/// A read of at least this many records or fragments triggers a compaction.
const READ_THRESHOLD: usize = 5;
/// With this many records a write waits for the compaction.
const BLOCKING_THRESHOLD: usize = 2500;
/// Compactions that run concurrently: at most one more than this.
const MAX_CONCURRENT: usize = 10;

/// The chunks that this client is compacting.
#[derive(Default)]
pub struct Compactions {
    chunks: Mutex<HashSet<ChunkKey>>,
    ended: Notify,
}

/// The exclusive right to compact one chunk. Dropping it releases the chunk.
struct ChunkGuard<'a> {
    all: &'a Compactions,
    chunk: ChunkKey,
}

/// Why a chunk is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// It would speed up reads. Skipped if many compactions are running.
    Optional,
    /// The chunk has too many records.
    Required,
    /// A caller requested it.
    Requested,
}

/// The outcome of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompactionOutcome {
    /// Nothing to compact, or another task is compacting the chunk.
    Skipped,
    Done,
    /// Another client has changed the records.
    Conflict,
}

impl Compactions {
    fn has_room(&self, chunk: &ChunkKey) -> bool {
        let chunks = self.lock();
        chunks.len() <= MAX_CONCURRENT && !chunks.contains(chunk)
    }

    /// Acquires a chunk without waiting; none if it is being compacted, or if too many are.
    fn try_acquire(&self, chunk: ChunkKey) -> Option<ChunkGuard<'_>> {
        let mut chunks = self.lock();
        (chunks.len() <= MAX_CONCURRENT && chunks.insert(chunk))
            .then(|| ChunkGuard { all: self, chunk })
    }

    /// Acquires a chunk as soon as it is free.
    async fn acquire(&self, chunk: ChunkKey) -> ChunkGuard<'_> {
        loop {
            let ended = self.ended.notified();
            if self.lock().insert(chunk) {
                return ChunkGuard { all: self, chunk };
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ChunkKey>> {
        self.chunks.lock()
    }
}

impl Drop for ChunkGuard<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.chunk);
        self.all.ended.notify_waiters();
    }
}

impl Meta {
    /// Compacts a chunk; returns whether it changed. With `force`, waits for a running compaction
    /// and repeats until nothing is left to compact.
    pub async fn compact(&self, ino: Ino, index: u32, force: bool) -> Result<bool> {
        self.check_writable()?;
        if !force {
            return Ok(
                self.compact_for(ino, index, Urgency::Optional).await? == CompactionOutcome::Done
            );
        }
        let mut gained = false;
        loop {
            match self.compact_for(ino, index, Urgency::Requested).await? {
                CompactionOutcome::Skipped => return Ok(gained),
                CompactionOutcome::Done => gained = true,
                CompactionOutcome::Conflict => {}
            }
        }
    }

    /// Called after a read that found these records, split into this many fragments.
    pub(in crate::meta::client) fn compact_after_read(
        &self,
        ino: Ino,
        index: u32,
        records: &[Slice],
        fragments: usize,
    ) {
        if records.len().max(fragments) < READ_THRESHOLD {
            return;
        }
        let Some(plan) = plan_compaction(records) else { return };
        // Each hole stays a record of its own, and splits the fragments around it.
        let holes = plan.holes.len();
        if records.len() >= READ_THRESHOLD + holes || fragments >= READ_THRESHOLD + 2 * holes {
            self.compact_soon(ino, index);
        }
    }

    /// Called after a write that left the chunk with this many records.
    pub(in crate::meta::client) async fn compact_after_write(
        &self,
        ino: Ino,
        index: u32,
        records: usize,
    ) {
        if records % 100 != 99 && records <= 350 {
            return;
        }
        if records < BLOCKING_THRESHOLD {
            self.compact_soon(ino, index);
        } else if let Err(error) = self.compact_for(ino, index, Urgency::Required).await {
            warn!(ino = ino.0, index, %error, "cannot compact a chunk");
        }
    }

    fn compact_soon(&self, ino: Ino, index: u32) {
        let able = self.slice_store().is_some() && !self.context.options.read_only;
        if !able || !self.compactions.has_room(&ChunkKey { ino, index }) {
            return;
        }
        self.spawn_background(async move |meta| {
            match meta.compact_for(ino, index, Urgency::Optional).await {
                // The file was removed meanwhile.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => warn!(ino = ino.0, index, %error, "cannot compact a chunk"),
            }
        });
    }

    async fn compact_for(
        &self,
        ino: Ino,
        index: u32,
        urgency: Urgency,
    ) -> Result<CompactionOutcome> {
        let Some(store) = self.slice_store() else { return Ok(CompactionOutcome::Skipped) };
        let chunk = ChunkKey { ino, index };
        let _guard = match urgency {
            Urgency::Optional => match self.compactions.try_acquire(chunk) {
                Some(guard) => guard,
                None => return Ok(CompactionOutcome::Skipped),
            },
            Urgency::Required | Urgency::Requested => self.compactions.acquire(chunk).await,
        };
        let Chunk { records, attr } = self.run(&Read { ino, index }).await?;
        if urgency == Urgency::Required && records.len() < BLOCKING_THRESHOLD {
            return Ok(CompactionOutcome::Skipped);
        }
        // Without a node the chunk is about to be deleted.
        let (Some(compaction), Some(attr)) = (plan_compaction(&records), attr) else {
            return Ok(CompactionOutcome::Skipped);
        };
        let id = self.new_slice().await?;
        let slice = SliceSize { id, size: compaction.size };
        if let Err(error) = store.rewrite(&compaction.fragments, id, attr.tier).await {
            self.discard(slice, chunk).await;
            // Slices that another compaction has replaced can no longer be read.
            let now = self.run(&Read { ino, index }).await?;
            let count = compaction.guarded();
            let same = now.records.get(..count) == records.get(..count);
            return if same { Err(error) } else { Ok(CompactionOutcome::Conflict) };
        }
        self.replace(chunk, &records, &compaction, slice).await
    }

    /// Replaces the records by the rewritten slice.
    async fn replace(
        &self,
        chunk: ChunkKey,
        records: &[Slice],
        compaction: &Compaction,
        slice: SliceSize,
    ) -> Result<CompactionOutcome> {
        let ChunkKey { ino, index } = chunk;
        let delay = self.context.setting().trash_days > 0;
        let op = Compact { ino, index, records, compaction, id: slice.id, delay };
        let outcome = self.run_with_receipts(&op).await;
        // Whatever the outcome, the cached view may be wrong.
        self.context.open.drop_view(ino, index);
        let unreferenced = match outcome {
            Ok(Completed { output: Compacted::Done(released), receipts }) => {
                unreferenced(&released, &receipts)
            }
            // The commit can no longer succeed: the chunk will never have these records again.
            Ok(_) => {
                self.discard(slice, chunk).await;
                return Ok(CompactionOutcome::Conflict);
            }
            // The commit may have taken effect although its reply was lost, or may do so later.
            // While the slice is recorded as unreferenced it cannot, so its objects are left to the
            // job.
            Err(error) => match self.abandon(slice, chunk).await {
                Ok(false) => Vec::new(),
                Ok(true) | Err(_) => return Err(error),
            },
        };
        self.engine.drop_single_ref(slice).await?;
        self.delete_in_background(&[], unreferenced);
        Ok(CompactionOutcome::Done)
    }

    /// Deletes a new slice that the chunk does not use.
    async fn discard(&self, slice: SliceSize, chunk: ChunkKey) {
        match self.abandon(slice, chunk).await {
            Ok(true) => drop(self.delete_slices(vec![slice]).await),
            Ok(false) => {}
            Err(error) => {
                warn!(slice = slice.id.0, %error, "cannot record an unused slice: its objects are leaked");
            }
        }
    }
}
