//! Delete chunk: deletes a chunk of a removed file and releases one reference per slice record.

use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::record::SliceSize;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan, TxnLock};

pub struct DeleteChunk {
    pub ino: Ino,
    pub index: u32,
}

/// Slices that lose a reference each. The first receipts are the references left, in this order.
pub type Released = Vec<SliceSize>;

impl Operation for DeleteChunk {
    type Output = Released;
    const NAME: &'static str = "delete a chunk";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Released>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Chunk(self.ino, self.index)]).await?;
        if tx.attr(self.ino).await?.is_some() {
            let why = format!("inode {} exists, so its data is not deleted", self.ino);
            return Err(Error::Refused(why));
        }
        let records = tx.chunk(self.ino, self.index).await?;
        if records.is_empty() {
            return Ok(Plan::unchanged(Released::new()));
        }
        let named = records.iter().filter(|record| !record.id.is_hole());
        let slices = named.map(|record| SliceSize { id: record.id, size: record.size }).collect();
        let mut plan = Plan::new();
        let released = release(&mut plan, slices);
        plan.push(Change::RemoveChunk { ino: self.ino, index: self.index });
        plan.log(tx, LogOp::DeleteChunk { ino: self.ino, index: self.index });
        Ok(plan.with_output(released))
    }
}

/// Releases a reference of each slice. These must be the first changes of a plan, so that its first
/// receipts are theirs.
pub(super) fn release<T>(plan: &mut Plan<T>, slices: Vec<SliceSize>) -> Released {
    let drops = slices.iter().map(|slice| Change::AddSliceRef { slice: *slice, by: -1 });
    plan.changes.extend(drops);
    slices
}
