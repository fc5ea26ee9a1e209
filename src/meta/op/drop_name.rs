//! Dropping a name that leads nowhere: what a store holds of it is no entry, its node is missing or
//! damaged, or it is a directory that lies elsewhere. Nothing but the name goes.

use super::{access, log};
use crate::error::{Error, Result};
use crate::meta::engine::{Key, Record};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Entry, FileKind};
use crate::meta::{Caller, Ino, Lane, MetaTxn, Name, Operation, Plan};

pub struct DropName<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
    /// What the name is known to lead to; none if the record cannot be read.
    pub ino: Option<Ino>,
}

impl Operation for DropName<'_> {
    type Output = u64;
    const NAME: &'static str = "drop name";

    fn lane(&self) -> Lane {
        Lane::Name(self.dir, self.name.clone())
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<u64>> {
        let dir = tx.dir(self.dir).await?;
        access::permits(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        let mut plan = Plan::new();
        if let Some(ino) = self.ino {
            let entry = tx.entry(self.dir, self.name).await?.filter(|entry| entry.ino == ino);
            let Some(entry) = entry else { return Ok(Plan::answer(0)) };
            if self.leads_on(tx, entry).await? {
                return Ok(Plan::answer(0));
            }
            let links = if entry.kind == FileKind::Dir { -1 } else { 0 };
            if !self.dir.is_trash() {
                plan.touch(self.dir, links, Some(tx.now()));
            }
            plan.use_dir(self.dir, 0, -4096, -1);
        }
        plan.remove_entry(self.dir, self.name);
        let ino = self.ino.unwrap_or(Ino::NONE);
        let line = LogOp::Rmdir { parent: self.dir, name: self.name, trash: Ino::NONE, ino };
        log::log(tx, &mut plan, line);
        Ok(plan.with(1))
    }
}

impl DropName<'_> {
    /// Whether it is no such name after all.
    async fn leads_on(&self, tx: &mut MetaTxn<'_>, entry: Entry) -> Result<bool> {
        match tx.peek(Key::Attr(entry.ino)).await {
            Ok(Record::Attr(Some(node))) => {
                Ok(entry.kind != FileKind::Dir || node.parent == self.dir)
            }
            Ok(_) | Err(Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
