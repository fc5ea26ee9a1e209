//! Fallocate: length ahead of data, and holes in it.

use nix::fcntl::FallocateFlags;

use super::truncate::{Present, Ranged};
use super::{access, growth, log, zeros};
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::FileKind;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, Lane, MetaTxn, Operation, Plan};

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
    pub chunks: Option<&'a Present>,
}

/// Refuses modes that are contradictory or not supported.
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
    type Output = Ranged;
    const NAME: &'static str = "fallocate";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Ranged>> {
        check_mode(self.mode)?;
        if self.size == 0 {
            return Err(Error::Invalid);
        }
        let end = zeros::check_end(self.off, self.size)?;
        tx.prefetch(&[Key::Attr(self.ino)]).await?;
        let old = tx.node(self.ino).await?;
        match old.kind {
            FileKind::Fifo => return Err(Error::BrokenPipe),
            FileKind::File if !old.has_flag(flag::IMMUTABLE) => {}
            _ => return Err(Error::NotPermitted),
        }
        access::permits(tx, self.caller, &old, access::WRITE).await?;
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
            // What lies past the end reads as zeros already.
            let range = self.off..end.min(old.length);
            let present = Present::of(self.chunks, &old);
            if zeros::is_wide(&range) && present.is_none() {
                return Ok(Plan::answer(Ranged::Wide(old)));
            }
            plan.changes.extend(zeros::erased(self.ino, range, present));
        }
        growth::charge(tx, &mut plan, self.ino, &old, new.length).await?;
        plan.put_attr(self.ino, &new);
        log::log(tx, &mut plan, self.line());
        Ok(plan.with(Ranged::Done(new)))
    }
}

impl Fallocate<'_> {
    fn line(&self) -> LogOp<'_> {
        // All supported modes are among the low bits.
        let mode = u8::try_from(self.mode.bits()).unwrap_or(0);
        LogOp::Fallocate { ino: self.ino, off: self.off, size: self.size, mode }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn modes_are_accepted_or_refused_by_what_they_ask() {
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
