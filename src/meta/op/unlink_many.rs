//! Unlinking many names of one directory in one commit, for removing trees and emptying the trash.

use super::removal::remove_link;
use super::{access, dir_times, log};
use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Entry, FileKind};
use crate::meta::{Caller, Ino, Lane, MetaTxn, Name, Operation, Plan};

pub struct UnlinkMany<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    /// Names with what they are known to stand for, no inode twice. A name that is gone, means something
    /// else by now, or turned into a directory is passed over.
    pub names: &'a [(Name, Entry)],
    pub hour: Option<Ino>,
}

impl Operation for UnlinkMany<'_> {
    type Output = u64;
    const NAME: &'static str = "unlink batch";

    fn lane(&self) -> Lane {
        Lane::Node(self.dir)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<u64>> {
        let mut keys = vec![Key::Place(self.dir)];
        // Their nodes are known, and read at the same time.
        keys.extend(self.names.iter().map(|(_, entry)| Key::Attr(entry.ino)));
        if !tx.expect_listed(self.dir, self.names) {
            keys.extend(self.names.iter().map(|(name, _)| Key::Entry(self.dir, name.clone())));
        }
        let mut read = tx.read_many(&keys).await?.into_iter();
        let Some(Record::Attr(dir)) = read.next() else { return Err(short_answer()) };
        let dir = dir.ok_or(Error::NotFound)?.into_dir()?;
        access::permits(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }

        let mut plan = Plan::new();
        let mut removed = Vec::new();
        let nodes: Vec<Record> = read.by_ref().take(self.names.len()).collect();
        for ((name, listed), node) in self.names.iter().zip(nodes) {
            let entry = match read.next() {
                // Only supposed.
                None => *listed,
                Some(Record::Entry(Some(entry))) if entry.ino == listed.ino => entry,
                Some(_) => continue,
            };
            if entry.kind == FileKind::Dir {
                continue;
            }
            let Record::Attr(attr) = node else { return Err(short_answer()) };
            let found = Found { entry, attr };
            if let Some(node) = &found.attr {
                access::may_remove(self.caller, &dir, node)?;
                let length = if node.is_file() { node.length.cast_signed() } else { 0 };
                plan.use_dir(self.dir, -length, -node.space(), -1);
            }
            plan.remove_entry(self.dir, name);
            remove_link(tx, &mut plan, (self.dir, name), &found, self.hour).await?;
            removed.push((name.clone(), entry.ino));
        }
        if removed.is_empty() {
            return Ok(plan.with(0));
        }
        let touches_parent =
            !self.dir.is_trash() && dir_times::update(tx, &mut plan, self.dir, &dir, 0);
        let line = LogOp::UnlinkBatch {
            parent: self.dir,
            removed: &removed,
            trash: self.hour.unwrap_or(Ino::NONE),
            touches_parent,
        };
        log::log(tx, &mut plan, line);
        plan.add_up();
        Ok(plan.with(removed.len() as u64))
    }
}

fn short_answer() -> Error {
    Error::damaged("answer", "the engine answered something else than was asked for")
}
