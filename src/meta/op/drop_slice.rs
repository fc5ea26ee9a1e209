//! Drop slice: the last traces of slices in metadata.

use super::delete_chunk::{Released, release};
use super::log;
use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::SliceSize;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan, SliceId};

/// The objects of slices without references are gone: so are their records.
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
            log::log(tx, &mut plan, LogOp::DeleteSlice(*slice));
        }
        Ok(plan)
    }
}

/// A slice that was uploaded and is not part of any file is recorded as without references, so that
/// its objects go even if this client does not live to delete them.
///
/// A compaction whose answer was lost may arrive late. Once this is committed it cannot: it guards
/// that its slice has no record. If it arrived before, the chunk shows it.
pub struct Abandon {
    pub slice: SliceSize,
    /// The chunk that it was meant for.
    pub chunk: (Ino, u32),
}

impl Operation for Abandon {
    /// False if the chunk does use the slice: then nothing changes.
    type Output = bool;
    const NAME: &'static str = "abandon a slice";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<bool>> {
        let (ino, index) = self.chunk;
        let SliceSize { id, size } = self.slice;
        tx.prefetch(&[Key::Chunk(ino, index), Key::SliceRef(id, size)]).await?;
        if tx.chunk(ino, index).await?.iter().any(|record| record.id == id) {
            return Ok(Plan::answer(false));
        }
        let mut plan = Plan::new();
        plan.push(Change::NewSlice(self.slice));
        plan.push(Change::AddSliceRef { slice: self.slice, by: -1 });
        Ok(plan.with(true))
    }
}

/// The days of a list of replaced slices are over: each loses the reference that it had there.
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
            return Ok(Plan::answer(Vec::new()));
        }
        let mut plan = Plan::new();
        let released = release(&mut plan, slices);
        plan.push(Change::RemoveDelayed { id: self.id, at: self.at });
        log::log(tx, &mut plan, LogOp::CleanupDelayedSlices { id: self.id, at: self.at });
        Ok(plan.with(released))
    }
}

/// All chunks of a removed file are gone: so is its record.
pub struct DropDeletedFile {
    pub ino: Ino,
    /// As it was at removal; part of the record's key.
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
