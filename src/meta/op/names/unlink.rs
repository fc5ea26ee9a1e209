//! Unlink: removes a name that is not a directory.

use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key};
use crate::meta::op::attrs::access;
use crate::meta::op::names::remove_link::remove_link;
use crate::meta::record::FileKind;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, EntryRef, Ino, MetaTxn, Name, Operation, Plan, TxnLock};

pub struct Unlink<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
    /// The hour directory of the trash, if the node is kept.
    pub hour: Option<Ino>,
}

impl Operation for Unlink<'_> {
    type Output = Ino;
    const NAME: &'static str = "unlink";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Name(self.dir, self.name.clone())
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Ino>> {
        tx.prefetch_speculative(&[Key::Place(self.dir), Key::Lookup(self.dir, self.name.clone())])
            .await?;
        let dir = tx.dir(self.dir).await?;
        let found = tx.lookup(self.dir, self.name).await?;
        if let Some(ino) = removed_before(self.caller, found.as_ref()) {
            return Ok(Plan::unchanged(ino));
        }
        self.caller.intend([0; 4]);
        let found = found.ok_or(Error::NotFound)?;
        if found.entry.kind == FileKind::Dir {
            return Err(Error::NotPermitted);
        }
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        match &found.attr {
            Some(node) => access::may_remove(self.caller, &dir, node)?,
            None if dir.has_flag(flag::APPEND | flag::IMMUTABLE) => {
                return Err(Error::NotPermitted);
            }
            None => {}
        }

        let mut plan = Plan::new();
        plan.remove_entry(self.dir, self.name);
        let touches_parent = !self.dir.is_trash() && plan.touch_dir_if_due(tx, self.dir, &dir, 0);
        let removed =
            remove_link(tx, &mut plan, EntryRef::new(self.dir, self.name), &found, self.hour)
                .await?;
        if let Some(node) = &found.attr {
            let length = if node.is_file() { node.length.cast_signed() } else { 0 };
            plan.add_dir_usage(self.dir, -length, -node.space(), -1);
        }
        let ino = found.entry.ino;
        let line = LogOp::Unlink {
            parent: self.dir,
            name: self.name,
            trash: removed.trash.unwrap_or(Ino::NONE),
            opened: removed.open,
            touches_parent,
            ino,
        };
        plan.log(tx, line);
        self.caller.intend([ino.0, 0, 0, 0]);
        Ok(plan.with_output(ino))
    }
}

/// Returns the node whose name an earlier process has removed for the same request.
pub(super) fn removed_before(caller: &Caller, found: Option<&Found>) -> Option<Ino> {
    let ino = Ino(caller.earlier_intent()?[0]);
    found.is_none_or(|found| found.entry.ino != ino).then_some(ino)
}
