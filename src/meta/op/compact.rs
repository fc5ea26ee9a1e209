//! Compact: one new slice takes the place of many records of a chunk.

use super::delete_chunk::{Released, release};
use super::log;
use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::Compaction;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Slice, SliceSize};
use crate::meta::{Ino, Lane, MetaTxn, Operation, Plan, SliceId};

pub struct Compact<'a> {
    pub ino: Ino,
    pub index: u32,
    /// The chunk as it was when the compaction was planned.
    pub records: &'a [Slice],
    pub compaction: &'a Compaction,
    /// The new slice.
    pub id: SliceId,
    /// Whether replaced slices are kept for the days of the trash.
    pub delay: bool,
}

pub enum Compacted {
    /// Slices that lost a reference, if there was no delay; the first receipts are theirs.
    Done(Released),
    /// The records are no longer those of the plan: the new slice is of no use.
    Stale,
}

impl Operation for Compact<'_> {
    type Output = Compacted;
    const NAME: &'static str = "compact";

    fn lane(&self) -> Lane {
        // Writes append to this chunk.
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Compacted>> {
        let Compaction { size, .. } = *self.compaction;
        // That the new slice has no record yet is guarded as well: see [`Abandon`].
        //
        // [`Abandon`]: super::drop_slice::Abandon
        tx.prefetch(&[Key::Chunk(self.ino, self.index), Key::SliceRef(self.id, size)]).await?;
        let count = self.compaction.guarded();
        let chunk = tx.chunk(self.ino, self.index).await?;
        if chunk.get(..count) != self.records.get(..count) {
            return Ok(Plan::answer(Compacted::Stale));
        }
        let mut plan = Plan::new();
        let replaced = self.compaction.released(self.records);
        let released = if self.delay {
            if !replaced.is_empty() {
                let at = tx.now().sec;
                plan.push(Change::PutDelayed { id: self.id, at, slices: replaced });
            }
            Released::new()
        } else {
            release(&mut plan, replaced)
        };
        plan.push(Change::ReplaceSlices {
            ino: self.ino,
            index: self.index,
            count,
            with: self.compaction.result(self.records, self.id),
        });
        plan.push(Change::TrackSlice(SliceSize { id: self.id, size }));
        log::log(tx, &mut plan, self.line());
        Ok(plan.with(Compacted::Done(released)))
    }
}

impl Compact<'_> {
    fn line(&self) -> LogOp<'_> {
        let Compaction { skipped, replaced, pos, size, .. } = *self.compaction;
        let slice = SliceSize { id: self.id, size };
        LogOp::CompactChunk { ino: self.ino, index: self.index, skipped, replaced, pos, slice }
    }
}
