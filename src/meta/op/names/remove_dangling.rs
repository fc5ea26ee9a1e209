//! Remove dangling: removes an entry that leads to no valid node. The stored record is no valid
//! entry, its node is missing or damaged, or it is a directory with another parent. Only the entry
//! is removed.

use crate::error::{Error, Result};
use crate::meta::engine::{Key, Record};
use crate::meta::op::attrs::access;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Entry, FileKind};
use crate::meta::{Caller, Ino, MetaTxn, Name, Operation, Plan, TxnLock};

pub struct RemoveDanglingEntry<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
    /// The inode that the entry refers to; none if the record cannot be read.
    pub ino: Option<Ino>,
}

impl Operation for RemoveDanglingEntry<'_> {
    type Output = u64;
    const NAME: &'static str = "drop name";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Name(self.dir, self.name.clone())
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<u64>> {
        let dir = tx.dir(self.dir).await?;
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        let mut plan = Plan::new();
        if let Some(ino) = self.ino {
            let entry = tx.entry(self.dir, self.name).await?.filter(|entry| entry.ino == ino);
            let Some(entry) = entry else { return Ok(Plan::unchanged(0)) };
            if self.is_valid(tx, entry).await? {
                return Ok(Plan::unchanged(0));
            }
            let links = if entry.kind == FileKind::Dir { -1 } else { 0 };
            if !self.dir.is_trash() {
                plan.touch_dir(self.dir, links, Some(tx.now()));
            }
            plan.add_dir_usage(self.dir, 0, -4096, -1);
        }
        plan.remove_entry(self.dir, self.name);
        let ino = self.ino.unwrap_or(Ino::NONE);
        let line = LogOp::Rmdir { parent: self.dir, name: self.name, trash: Ino::NONE, ino };
        plan.log(tx, line);
        Ok(plan.with_output(1))
    }
}

impl RemoveDanglingEntry<'_> {
    /// Whether the entry is valid after all.
    async fn is_valid(&self, tx: &mut MetaTxn<'_>, entry: Entry) -> Result<bool> {
        match tx.peek(Key::Attr(entry.ino)).await {
            Ok(Record::Attr(Some(node))) => {
                Ok(entry.kind != FileKind::Dir || node.parent == self.dir)
            }
            Ok(_) | Err(Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
