//! Unlink many: removes many names of one directory in one commit, for removing trees and emptying
//! the trash.

use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::op::attrs::access;
use crate::meta::op::names::remove_link::remove_link;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Entry, FileKind};
use crate::meta::{Caller, EntryRef, Ino, MetaTxn, Name, Operation, Plan, TxnLock};

pub struct UnlinkMany<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    /// Names and the entries they were listed with, no inode twice. A name that is gone, refers to
    /// another inode by now, or has become a directory is skipped.
    pub names: &'a [(Name, Entry)],
    pub hour: Option<Ino>,
}

impl Operation for UnlinkMany<'_> {
    type Output = u64;
    const NAME: &'static str = "unlink batch";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.dir)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<u64>> {
        let mut keys = vec![Key::Place(self.dir)];
        // The inodes are known, so their attrs are read with the same request.
        keys.extend(self.names.iter().map(|(_, entry)| Key::Attr(entry.ino)));
        if !tx.speculate_entries(self.dir, self.names) {
            keys.extend(self.names.iter().map(|(name, _)| Key::Entry(self.dir, name.clone())));
        }
        let mut read = tx.read_many(&keys).await?.into_iter();
        let Some(Record::Attr(dir)) = read.next() else { return Err(unexpected_reply()) };
        let dir = dir.ok_or(Error::NotFound)?.into_dir()?;
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }

        let mut plan = Plan::new();
        let mut removed = Vec::new();
        let nodes: Vec<Record> = read.by_ref().take(self.names.len()).collect();
        for ((name, listed), node) in self.names.iter().zip(nodes) {
            let entry = match read.next() {
                // Taken from the listing; the commit verifies it.
                None => *listed,
                Some(Record::Entry(Some(entry))) if entry.ino == listed.ino => entry,
                Some(_) => continue,
            };
            if entry.kind == FileKind::Dir {
                continue;
            }
            let Record::Attr(attr) = node else { return Err(unexpected_reply()) };
            let found = Found { entry, attr };
            if let Some(node) = &found.attr {
                access::may_remove(self.caller, &dir, node)?;
                let length = if node.is_file() { node.length.cast_signed() } else { 0 };
                plan.add_dir_usage(self.dir, -length, -node.space(), -1);
            }
            plan.remove_entry(self.dir, name);
            remove_link(tx, &mut plan, EntryRef::new(self.dir, name), &found, self.hour).await?;
            removed.push((name.clone(), entry.ino));
        }
        if removed.is_empty() {
            return Ok(plan.with_output(0));
        }
        let touches_parent = !self.dir.is_trash() && plan.touch_dir_if_due(tx, self.dir, &dir, 0);
        let line = LogOp::UnlinkBatch {
            parent: self.dir,
            removed: &removed,
            trash: self.hour.unwrap_or(Ino::NONE),
            touches_parent,
        };
        plan.log(tx, line);
        plan.merge_usage();
        Ok(plan.with_output(removed.len() as u64))
    }
}

fn unexpected_reply() -> Error {
    Error::damaged("reply", "the engine returned other records than requested")
}
