//! Compact: replaces many slice records of a chunk by one new slice.

use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::op::garbage::delete_chunk::{Released, release};
use crate::meta::record::Compaction;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Slice, SliceSize};
use crate::meta::{Ino, MetaTxn, Operation, Plan, SliceId, TxnLock};

pub struct Compact<'a> {
    pub ino: Ino,
    pub index: u32,
    /// The records of the chunk when the compaction was planned.
    pub records: &'a [Slice],
    pub compaction: &'a Compaction,
    /// The id of the new slice.
    pub id: SliceId,
    /// Whether replaced slices are kept as long as the trash keeps files.
    pub delay: bool,
}

pub enum Compacted {
    /// Slices that lost a reference, if there was no delay; the first receipts are theirs.
    Done(Released),
    /// The records have changed since the plan, so the new slice is of no use.
    Stale,
}

impl Operation for Compact<'_> {
    type Output = Compacted;
    const NAME: &'static str = "compact";

    fn txn_lock(&self) -> TxnLock {
        // Writes append records to the same chunk.
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Compacted>> {
        let Compaction { size, .. } = *self.compaction;
        // The reference of the new slice is guarded too: it must not have a record yet. See
        // [`Abandon`].
        //
        // [`Abandon`]: super::drop_slice::Abandon
        tx.prefetch(&[Key::Chunk(self.ino, self.index), Key::SliceRef(self.id, size)]).await?;
        let count = self.compaction.guarded();
        let chunk = tx.chunk(self.ino, self.index).await?;
        if chunk.get(..count) != self.records.get(..count) {
            return Ok(Plan::unchanged(Compacted::Stale));
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
        plan.log(tx, self.line());
        Ok(plan.with_output(Compacted::Done(released)))
    }
}

impl Compact<'_> {
    fn line(&self) -> LogOp<'_> {
        let Compaction { skipped, replaced, pos, size, .. } = *self.compaction;
        let slice = SliceSize { id: self.id, size };
        LogOp::CompactChunk { ino: self.ino, index: self.index, skipped, replaced, pos, slice }
    }
}
