//! Compaction: chunks of many records are rewritten as one slice.

use std::collections::HashSet;

use tokio::sync::Notify;
use tracing::warn;

use super::Meta;
use super::garbage::dead;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::op::compact::{Compact, Compacted};
use crate::meta::op::read::{Chunk, Read};
use crate::meta::record::{Compaction, plan_compaction};
use crate::meta::record::{Slice, SliceSize};
use crate::meta::run::Done;
use crate::sync::{Mutex, MutexGuard};

/// Reads of more records or fragments than this wish for a compaction.
const MANY_TO_READ: usize = 5;
/// With this many records a write waits for the compaction.
const TOO_MANY: usize = 2500;
/// Compactions that run at once, at most one more than this.
const AT_ONCE: usize = 10;

/// Chunks being compacted by this client.
#[derive(Default)]
pub struct Compactions {
    chunks: Mutex<HashSet<(Ino, u32)>>,
    ended: Notify,
}

/// The right to compact one chunk.
struct Turn<'a> {
    all: &'a Compactions,
    chunk: (Ino, u32),
}

/// Why a chunk is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// It would help. Dropped if much is going on.
    Helpful,
    /// No more records should be added.
    Overdue,
    /// Someone asked for it.
    Asked,
}

/// What came of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// There is nothing to gain, or someone else is at it.
    Nothing,
    Done,
    /// Someone else changed the records meanwhile.
    Overtaken,
}

impl Compactions {
    fn has_room(&self, chunk: &(Ino, u32)) -> bool {
        let chunks = self.lock();
        chunks.len() <= AT_ONCE && !chunks.contains(chunk)
    }

    /// A turn without waiting: none if the chunk is in work, or too many are.
    fn try_turn(&self, chunk: (Ino, u32)) -> Option<Turn<'_>> {
        let mut chunks = self.lock();
        (chunks.len() <= AT_ONCE && chunks.insert(chunk)).then(|| Turn { all: self, chunk })
    }

    /// A turn as soon as the chunk is free.
    async fn turn(&self, chunk: (Ino, u32)) -> Turn<'_> {
        loop {
            let ended = self.ended.notified();
            if self.lock().insert(chunk) {
                return Turn { all: self, chunk };
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(Ino, u32)>> {
        self.chunks.lock()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.chunk);
        self.all.ended.notify_waiters();
    }
}

impl Meta {
    /// Compacts a chunk; answers whether that gained anything. With `force`, waits for one that is under
    /// way and goes on until there is nothing left to gain.
    pub async fn compact(&self, ino: Ino, index: u32, force: bool) -> Result<bool> {
        self.refuse_writes()?;
        if !force {
            return Ok(self.compact_for(ino, index, Urgency::Helpful).await? == Outcome::Done);
        }
        let mut gained = false;
        loop {
            match self.compact_for(ino, index, Urgency::Asked).await? {
                Outcome::Nothing => return Ok(gained),
                Outcome::Done => gained = true,
                Outcome::Overtaken => {}
            }
        }
    }

    /// After a read that saw these records, as this many fragments.
    pub(super) fn compact_after_read(
        &self,
        ino: Ino,
        index: u32,
        records: &[Slice],
        fragments: usize,
    ) {
        if records.len().max(fragments) < MANY_TO_READ {
            return;
        }
        let Some(plan) = plan_compaction(records) else { return };
        // A hole stays a record, and a fragment between two others.
        let holes = plan.holes.len();
        if records.len() >= MANY_TO_READ + holes || fragments >= MANY_TO_READ + 2 * holes {
            self.compact_soon(ino, index);
        }
    }

    /// After a write that left the chunk with this many records.
    pub(super) async fn compact_after_write(&self, ino: Ino, index: u32, records: usize) {
        if records % 100 != 99 && records <= 350 {
            return;
        }
        if records < TOO_MANY {
            self.compact_soon(ino, index);
        } else if let Err(error) = self.compact_for(ino, index, Urgency::Overdue).await {
            warn!(ino = ino.0, index, %error, "cannot compact");
        }
    }

    fn compact_soon(&self, ino: Ino, index: u32) {
        let able = self.slice_store().is_some() && !self.facts.options.read_only;
        if !able || !self.compactions.has_room(&(ino, index)) {
            return;
        }
        self.work(async move |meta| {
            match meta.compact_for(ino, index, Urgency::Helpful).await {
                // The file went meanwhile.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => warn!(ino = ino.0, index, %error, "cannot compact"),
            }
        });
    }

    async fn compact_for(&self, ino: Ino, index: u32, urgency: Urgency) -> Result<Outcome> {
        let Some(store) = self.slice_store() else { return Ok(Outcome::Nothing) };
        let chunk = (ino, index);
        let _turn = match urgency {
            Urgency::Helpful => match self.compactions.try_turn(chunk) {
                Some(turn) => turn,
                None => return Ok(Outcome::Nothing),
            },
            Urgency::Overdue | Urgency::Asked => self.compactions.turn(chunk).await,
        };
        let Chunk { records, attr } = self.run(&Read { ino, index }).await?;
        if urgency == Urgency::Overdue && records.len() < TOO_MANY {
            return Ok(Outcome::Nothing);
        }
        // Without its node the chunk is about to go.
        let (Some(compaction), Some(attr)) = (plan_compaction(&records), attr) else {
            return Ok(Outcome::Nothing);
        };
        let id = self.new_slice().await?;
        let slice = SliceSize { id, size: compaction.size };
        if let Err(error) = store.rewrite(&compaction.fragments, id, attr.tier).await {
            self.discard(slice, chunk).await;
            // What another compaction has replaced cannot be read any more.
            let now = self.run(&Read { ino, index }).await?;
            let count = compaction.guarded();
            let same = now.records.get(..count) == records.get(..count);
            return if same { Err(error) } else { Ok(Outcome::Overtaken) };
        }
        self.replace(chunk, &records, &compaction, slice).await
    }

    /// Puts the rewritten slice in place of the records that it was made of.
    async fn replace(
        &self,
        (ino, index): (Ino, u32),
        records: &[Slice],
        compaction: &Compaction,
        slice: SliceSize,
    ) -> Result<Outcome> {
        let delay = self.facts.setting().trash_days > 0;
        let op = Compact { ino, index, records, compaction, id: slice.id, delay };
        let outcome = self.run_counted(&op).await;
        // Whatever came of it, what was known of the chunk may be wrong.
        self.facts.open.drop_view(ino, index);
        let dead = match outcome {
            Ok(Done { output: Compacted::Done(released), receipts }) => dead(&released, &receipts),
            // Nothing of the compaction can arrive any more: the records never become these again.
            Ok(_) => {
                self.discard(slice, (ino, index)).await;
                return Ok(Outcome::Overtaken);
            }
            // The commit may have taken effect all the same, its answer lost, or do so later. As long
            // as the slice is recorded as dead it cannot, so its objects are left to the job.
            Err(error) => match self.abandon(slice, (ino, index)).await {
                Ok(false) => Vec::new(),
                Ok(true) | Err(_) => return Err(error),
            },
        };
        self.engine.drop_single_ref(slice).await?;
        self.collect(&[], dead);
        Ok(Outcome::Done)
    }

    /// Gets rid of a new slice that the chunk does not use.
    async fn discard(&self, slice: SliceSize, chunk: (Ino, u32)) {
        match self.abandon(slice, chunk).await {
            Ok(true) => drop(self.delete_slices(vec![slice]).await),
            Ok(false) => {}
            Err(error) => warn!(slice = slice.id.0, %error, "the objects of a slice leak"),
        }
    }
}
