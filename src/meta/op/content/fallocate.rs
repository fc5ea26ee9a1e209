//! Fallocate: allocates, punches or zeroes a range.

use nix::fcntl::FallocateFlags;

use crate::error::{Error, Result};
use crate::meta::chunk_range::check_file_end;
use crate::meta::engine::Key;
use crate::meta::op::attrs::access;
use crate::meta::op::content::charge_growth::charge_growth;
use crate::meta::op::content::truncate::{ExistingChunks, RangeOutcome};
use crate::meta::op::content::zero_ranges;
use crate::meta::record::FileKind;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, MetaTxn, Operation, Plan, TxnLock};

const KEEP_SIZE: FallocateFlags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
const PUNCH_HOLE: FallocateFlags = FallocateFlags::FALLOC_FL_PUNCH_HOLE;
const ZERO_RANGE: FallocateFlags = FallocateFlags::FALLOC_FL_ZERO_RANGE;
const COLLAPSE: FallocateFlags = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
const INSERT: FallocateFlags = FallocateFlags::FALLOC_FL_INSERT_RANGE;

pub struct Fallocate<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub mode: FallocateFlags,
    pub off: u64,
    pub size: u64,
    pub chunks: Option<&'a ExistingChunks>,
}

/// Fails for flags that contradict each other or are not supported.
pub fn check_mode(mode: FallocateFlags) -> Result<()> {
    if mode.intersects(COLLAPSE | INSERT) {
        let alone = mode == COLLAPSE || mode == INSERT;
        return Err(if alone { Error::NotSupported } else { Error::Invalid });
    }
    if !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE).contains(mode) {
        return Err(Error::NotSupported);
    }
    if mode.contains(PUNCH_HOLE) && !mode.contains(KEEP_SIZE) {
        return Err(Error::Invalid);
    }
    Ok(())
}

impl Operation for Fallocate<'_> {
    type Output = RangeOutcome;
    const NAME: &'static str = "fallocate";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<RangeOutcome>> {
        check_mode(self.mode)?;
        if self.size == 0 {
            return Err(Error::Invalid);
        }
        let end = check_file_end(self.off, self.size)?;
        tx.prefetch(&[Key::Attr(self.ino)]).await?;
        let old = tx.node(self.ino).await?;
        match old.kind {
            FileKind::Fifo => return Err(Error::BrokenPipe),
            FileKind::File if !old.has_flag(flag::IMMUTABLE) => {}
            _ => return Err(Error::NotPermitted),
        }
        access::check(tx, self.caller, &old, access::WRITE).await?;
        if old.has_flag(flag::APPEND) && !KEEP_SIZE.contains(self.mode) {
            return Err(Error::NotPermitted);
        }

        let mut new = old.clone();
        if !self.mode.contains(KEEP_SIZE) {
            new.length = old.length.max(end);
        }
        new.mtime = tx.now();
        new.ctime = tx.now();

        let mut plan = Plan::new();
        if self.mode.intersects(PUNCH_HOLE | ZERO_RANGE) {
            // Bytes past the end read as zeros anyway.
            let range = self.off..end.min(old.length);
            let present = ExistingChunks::of(self.chunks, &old);
            if zero_ranges::is_wide(&range) && present.is_none() {
                return Ok(Plan::unchanged(RangeOutcome::NeedChunks(old)));
            }
            plan.changes.extend(zero_ranges::records_for_zeroing(self.ino, range, present));
        }
        charge_growth(tx, &mut plan, self.ino, &old, new.length).await?;
        plan.put_attr(self.ino, &new);
        plan.log(tx, self.line());
        Ok(plan.with_output(RangeOutcome::Done(new)))
    }
}

impl Fallocate<'_> {
    fn line(&self) -> LogOp<'_> {
        // All supported flags are in the low bits.
        let mode = u8::try_from(self.mode.bits()).unwrap_or(0);
        LogOp::Fallocate { ino: self.ino, off: self.off, size: self.size, mode }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn supported_modes_are_accepted_and_others_refused() {
        let (invalid, unsupported) = (Some(Errno::EINVAL), Some(Errno::ENOTSUP));
        for (mode, refusal) in [
            (FallocateFlags::empty(), None),
            (KEEP_SIZE, None),
            (KEEP_SIZE | PUNCH_HOLE, None),
            (ZERO_RANGE, None),
            (ZERO_RANGE | KEEP_SIZE, None),
            (PUNCH_HOLE, invalid),
            (COLLAPSE, unsupported),
            (INSERT, unsupported),
            (COLLAPSE | KEEP_SIZE, invalid),
            (INSERT | COLLAPSE, invalid),
            (FallocateFlags::FALLOC_FL_UNSHARE_RANGE, unsupported),
        ] {
            assert_eq!(check_mode(mode).err().map(|error| error.errno()), refusal, "{mode:?}");
        }
    }
}
