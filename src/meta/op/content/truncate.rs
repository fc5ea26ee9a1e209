//! Truncate: changes a file's length; the bytes between the old and the new length read as zeros.

use crate::error::{Error, Result};
use crate::meta::chunk_range::check_file_end;
use crate::meta::engine::Key;
use crate::meta::op::attrs::access;
use crate::meta::op::content::charge_growth::charge_growth;
use crate::meta::op::content::zero_ranges;
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, MetaTxn, Operation, Plan, TxnLock};

pub struct Truncate<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub length: u64,
    /// The call came through a handle that is open for writing, so permissions were checked at
    /// open.
    pub by_handle: bool,
    pub chunks: Option<&'a ExistingChunks>,
}

/// The chunks that a file has. Valid as long as its attr is unchanged: adding a chunk writes the
/// attr.
pub struct ExistingChunks {
    pub attr: Attr,
    pub indexes: Vec<u32>,
}

impl ExistingChunks {
    /// The chunk indexes if the file is unchanged; none if they must be listed again.
    pub(super) fn of<'a>(chunks: Option<&'a Self>, attr: &Attr) -> Option<&'a [u32]> {
        chunks.filter(|present| present.attr == *attr).map(|present| present.indexes.as_slice())
    }
}

/// The outcome of a change to a range of a file.
pub enum RangeOutcome {
    Done(Attr),
    /// The range covers so many chunks that the file's chunks must be listed first. Contains the
    /// attr of the file.
    NeedChunks(Attr),
}

impl Operation for Truncate<'_> {
    type Output = RangeOutcome;
    const NAME: &'static str = "truncate";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<RangeOutcome>> {
        check_file_end(self.length, 0)?;
        tx.prefetch(&[Key::Attr(self.ino)]).await?;
        let old = tx.node(self.ino).await?;
        if !old.is_file()
            || old.has_flag(flag::IMMUTABLE | flag::APPEND)
            || (!self.by_handle && old.parent.is_sub_trash())
        {
            return Err(Error::NotPermitted);
        }
        if !self.by_handle {
            access::check(tx, self.caller, &old, access::WRITE).await?;
        }
        let range = old.length.min(self.length)..old.length.max(self.length);
        let present = ExistingChunks::of(self.chunks, &old);
        if zero_ranges::is_wide(&range) && present.is_none() {
            return Ok(Plan::unchanged(RangeOutcome::NeedChunks(old)));
        }

        let mut new = old.clone();
        new.length = self.length;
        new.mtime = tx.now();
        new.ctime = tx.now();

        let mut plan = Plan::new();
        charge_growth(tx, &mut plan, self.ino, &old, self.length).await?;
        plan.put_attr(self.ino, &new);
        // Setting the current length again only changes the times.
        if !range.is_empty() {
            plan.changes.extend(zero_ranges::records_for_resize(self.ino, range, present));
        }
        plan.log(tx, self.line(old.length));
        Ok(plan.with_output(RangeOutcome::Done(new)))
    }
}

impl Truncate<'_> {
    fn line(&self, old: u64) -> LogOp<'_> {
        let flags = u8::from(self.by_handle);
        LogOp::Truncate { ino: self.ino, old, new: self.length, flags }
    }
}
