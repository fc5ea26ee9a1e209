//! Truncate: a file's length changes, and what lies between the old and the new reads as zeros.

use super::{access, growth, log, zeros};
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, Lane, MetaTxn, Operation, Plan};

pub struct Truncate<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub length: u64,
    /// Through a handle that is open for writing: what could refuse it has been asked at open.
    pub by_handle: bool,
    pub chunks: Option<&'a Present>,
}

/// Which chunks a file has, as long as its attr is this one: whoever adds a chunk writes the attr.
pub struct Present {
    pub attr: Attr,
    pub indexes: Vec<u32>,
}

impl Present {
    /// The chunks of a file that is as it was; none if they must be listed again.
    pub(super) fn of<'a>(chunks: Option<&'a Self>, attr: &Attr) -> Option<&'a [u32]> {
        chunks.filter(|present| present.attr == *attr).map(|present| present.indexes.as_slice())
    }
}

/// How a change over a range of a file ends.
pub enum Ranged {
    Done(Attr),
    /// The range is so wide that the chunks of the file, which is like this, must be known first.
    Wide(Attr),
}

impl Operation for Truncate<'_> {
    type Output = Ranged;
    const NAME: &'static str = "truncate";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Ranged>> {
        zeros::check_end(self.length, 0)?;
        tx.prefetch(&[Key::Attr(self.ino)]).await?;
        let old = tx.node(self.ino).await?;
        if !old.is_file()
            || old.has_flag(flag::IMMUTABLE | flag::APPEND)
            || (!self.by_handle && old.parent.is_sub_trash())
        {
            return Err(Error::NotPermitted);
        }
        if !self.by_handle {
            access::permits(tx, self.caller, &old, access::WRITE).await?;
        }
        let range = old.length.min(self.length)..old.length.max(self.length);
        let present = Present::of(self.chunks, &old);
        if zeros::is_wide(&range) && present.is_none() {
            return Ok(Plan::answer(Ranged::Wide(old)));
        }

        let mut new = old.clone();
        new.length = self.length;
        new.mtime = tx.now();
        new.ctime = tx.now();

        let mut plan = Plan::new();
        growth::charge(tx, &mut plan, self.ino, &old, self.length).await?;
        plan.put_attr(self.ino, &new);
        // Whoever sets the length that a file has changes its times only.
        if !range.is_empty() {
            plan.changes.extend(zeros::resized(self.ino, range, present));
        }
        log::log(tx, &mut plan, self.line(old.length));
        Ok(plan.with(Ranged::Done(new)))
    }
}

impl Truncate<'_> {
    fn line(&self, old: u64) -> LogOp<'_> {
        let flags = u8::from(self.by_handle);
        LogOp::Truncate { ino: self.ino, old, new: self.length, flags }
    }
}
