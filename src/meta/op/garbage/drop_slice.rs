//! Drop slice: removes the records of slices and of deleted files once their objects are deleted.

use crate::error::Result;
use crate::meta::chunk_range::ChunkKey;
use crate::meta::engine::{Change, Key};
use crate::meta::op::garbage::delete_chunk::{Released, release};
use crate::meta::record::SliceSize;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan, SliceId};

/// Removes the records of slices whose objects are deleted.
pub struct DropSlices<'a> {
    pub slices: &'a [SliceSize],
}

impl Operation for DropSlices<'_> {
    type Output = ();
    const NAME: &'static str = "drop slices";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        let mut plan = Plan::new();
        for slice in self.slices {
            plan.push(Change::RemoveSliceRef(*slice));
            plan.log(tx, LogOp::DeleteSlice(*slice));
        }
        Ok(plan)
    }
}

/// Records an uploaded slice that is part of no file as unreferenced, so that its objects are
/// deleted even if this client dies first.
///
/// A compaction whose reply was lost may still be committed later. Once this operation is
/// committed, that is no longer possible, since the compaction guards that its slice has no record.
/// If the compaction was committed first, the chunk contains the slice.
pub struct Abandon {
    pub slice: SliceSize,
    /// The chunk that it was written for.
    pub chunk: ChunkKey,
}

impl Operation for Abandon {
    /// False if the chunk uses the slice: then nothing changes.
    type Output = bool;
    const NAME: &'static str = "abandon a slice";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<bool>> {
        let ChunkKey { ino, index } = self.chunk;
        let SliceSize { id, size } = self.slice;
        tx.prefetch(&[Key::Chunk(ino, index), Key::SliceRef(id, size)]).await?;
        if tx.chunk(ino, index).await?.iter().any(|record| record.id == id) {
            return Ok(Plan::unchanged(false));
        }
        let mut plan = Plan::new();
        plan.push(Change::NewSlice(self.slice));
        plan.push(Change::AddSliceRef { slice: self.slice, by: -1 });
        Ok(plan.with_output(true))
    }
}

/// Releases the references of replaced slices that were kept for as long as the trash keeps files.
pub struct DropDelayed {
    pub id: SliceId,
    pub at: i64,
}

impl Operation for DropDelayed {
    type Output = Released;
    const NAME: &'static str = "drop delayed slices";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Released>> {
        tx.prefetch(&[Key::Delayed(self.id, self.at)]).await?;
        let slices = tx.delayed(self.id, self.at).await?;
        if slices.is_empty() {
            return Ok(Plan::unchanged(Vec::new()));
        }
        let mut plan = Plan::new();
        let released = release(&mut plan, slices);
        plan.push(Change::RemoveDelayed { id: self.id, at: self.at });
        plan.log(tx, LogOp::CleanupDelayedSlices { id: self.id, at: self.at });
        Ok(plan.with_output(released))
    }
}

/// Removes the record that lists a file for deletion, after all its chunks are deleted.
pub struct DropDeletedFile {
    pub ino: Ino,
    /// The length at removal; part of the record's key.
    pub length: u64,
}

impl Operation for DropDeletedFile {
    type Output = ();
    const NAME: &'static str = "drop a deleted file";

    async fn plan(&self, _tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        let mut plan = Plan::new();
        plan.push(Change::RemoveDeletedFile { ino: self.ino, length: self.length });
        Ok(plan)
    }
}
