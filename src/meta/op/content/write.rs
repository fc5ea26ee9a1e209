//! Write: adds an uploaded slice to a file.

use crate::error::{Error, Result};
use crate::meta::chunk_range::check_file_end;
use crate::meta::engine::{Change, Key};
use crate::meta::op::content::charge_growth::charge_growth;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::chunk::CHUNK_BITS;
use crate::meta::record::{Attr, CHUNK_SIZE, Slice, SliceSize};
use crate::meta::{Ino, MetaTxn, Operation, Plan, Timestamp, TxnLock};

pub struct Write {
    pub ino: Ino,
    pub index: u32,
    /// `pos` is the position in the chunk.
    pub slice: Slice,
    /// When the application wrote the last of these bytes.
    pub mtime: Timestamp,
}

/// The file before and after. The first receipt is the number of records in the chunk.
pub struct Written {
    pub before: Attr,
    pub after: Attr,
}

impl Operation for Write {
    type Output = Written;
    const NAME: &'static str = "write";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Written>> {
        let end = self.end()?;
        tx.prefetch_speculative(&[Key::Attr(self.ino)]).await?;
        let before = tx.node(self.ino).await?;
        if !before.is_file() {
            return Err(Error::NotPermitted);
        }
        let mut after = before.clone();
        after.length = before.length.max(end);
        after.mtime = self.mtime;
        after.ctime = tx.now();

        let mut plan = Plan::new();
        plan.push(Change::AppendSlices {
            ino: self.ino,
            index: self.index,
            slices: vec![self.slice],
            if_present: false,
        });
        if !self.slice.id.is_hole() {
            plan.push(Change::NewSlice(SliceSize { id: self.slice.id, size: self.slice.size }));
        }
        // Not `put_attr`: only the view of this chunk becomes invalid, and the caller handles that.
        plan.push(Change::PutAttr(self.ino, after.clone()));
        charge_growth(tx, &mut plan, self.ino, &before, after.length).await?;
        plan.log(tx, self.line());
        Ok(plan.with_output(Written { before, after }))
    }
}

impl Write {
    fn end(&self) -> Result<u64> {
        let Slice { pos, size, off, len, id } = self.slice;
        let in_chunk = u64::from(pos) + u64::from(len) <= CHUNK_SIZE;
        let in_slice = id.is_hole() || u64::from(off) + u64::from(len) <= u64::from(size);
        if len == 0 || !in_chunk || !in_slice {
            return Err(Error::Invalid);
        }
        check_file_end((u64::from(self.index) << CHUNK_BITS) + u64::from(pos), u64::from(len))
    }

    fn line(&self) -> LogOp<'_> {
        let Slice { pos: off, id, len, .. } = self.slice;
        // The number of records is not known before the commit.
        let (ino, index, mtime, records) = (self.ino, self.index, self.mtime, 0);
        LogOp::Write { ino, index, off, id, len, mtime, records }
    }
}
