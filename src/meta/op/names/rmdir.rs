//! Rmdir: removes an empty directory, to the trash or permanently.

use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::op::attrs::access;
use crate::meta::op::names::unlink::removed_before;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::trash::Trashed;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, EntryRef, Ino, MetaTxn, Name, Operation, Plan, TxnLock};

pub struct Rmdir<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
    /// The hour directory of the trash, if the directory is kept.
    pub hour: Option<Ino>,
}

impl Operation for Rmdir<'_> {
    /// The removed directory, if it was removed permanently.
    type Output = Option<(Ino, Attr)>;
    const NAME: &'static str = "rmdir";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Name(self.dir, self.name.clone())
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Self::Output>> {
        tx.prefetch_speculative(&[Key::Place(self.dir), Key::Lookup(self.dir, self.name.clone())])
            .await?;
        let dir = tx.dir(self.dir).await?;
        let found = tx.lookup(self.dir, self.name).await?;
        if removed_before(self.caller, found.as_ref()).is_some() {
            return Ok(Plan::unchanged(None));
        }
        self.caller.intend([0; 4]);
        let found = found.ok_or(Error::NotFound)?;
        if found.entry.kind != FileKind::Dir {
            return Err(Error::NotDirectory);
        }
        let ino = found.entry.ino;
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        if tx.has_entries(ino).await? {
            return Err(Error::NotEmpty);
        }
        if let Some(node) = &found.attr {
            access::check_sticky(self.caller, &dir, node)?;
        }

        let mut plan = Plan::new();
        plan.remove_entry(self.dir, self.name);
        if !self.dir.is_trash() {
            plan.touch_dir(self.dir, -1, Some(tx.now()));
        }
        let hour = drop_dir(
            tx,
            &mut plan,
            EntryRef::new(self.dir, self.name),
            ino,
            found.attr.as_ref(),
            self.hour,
        );
        plan.push(Change::RemoveDirStat(ino));
        plan.push(Change::RemoveDirQuota(ino));
        plan.add_dir_usage(self.dir, 0, -4096, -1);
        let trash = hour.unwrap_or(Ino::NONE);
        self.caller.intend([ino.0, 0, 0, 0]);
        plan.log(tx, LogOp::Rmdir { parent: self.dir, name: self.name, trash, ino });
        Ok(plan.with_output(found.attr.filter(|_| hour.is_none()).map(|attr| (ino, attr))))
    }
}

/// Plans what happens to an empty directory whose entry is removed; returns the hour directory that
/// keeps it. Shared with rename over an empty directory.
pub(super) fn drop_dir<T>(
    tx: &MetaTxn<'_>,
    plan: &mut Plan<T>,
    entry: EntryRef<'_>,
    ino: Ino,
    node: Option<&Attr>,
    hour: Option<Ino>,
) -> Option<Ino> {
    plan.effects.removed_dirs.push(ino);
    let node = node?;
    let hour = hour.filter(|_| !node.has_flag(flag::SKIP_TRASH));
    if let Some(hour) = hour {
        let kept = Attr { ctime: tx.now(), parent: hour, ..node.clone() };
        plan.put_attr(ino, &kept);
        let trashed = Trashed { parent: entry.dir, ino, name: entry.name.clone() };
        plan.put_entry(hour, &trashed.entry_name(), FileKind::Dir, ino);
        plan.add_dir_usage(hour, 0, 4096, 1);
    } else {
        plan.push(Change::RemoveAttr(ino));
        plan.push(Change::RemoveXattrs(ino));
        plan.effects.changed_nodes.push(ino);
        plan.add_usage(-4096, -1);
        // The directories of the trash itself are not charged to any owner.
        if entry.dir != Ino::TRASH {
            plan.add_owner_usage(node.uid, node.gid, -4096, -1);
        }
    }
    hour
}
