//! Accounting: applies the effects of a commit to this client.
//!
//! Nothing here waits or fails: usage is kept as unsent, and the flush tasks send it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::Result;
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::context::Context;
use crate::meta::context::ancestors::{AncestorWalk, WalkStep};
use crate::meta::engine::Change;
use crate::meta::plan::{Effects, OwnerUsage, SubtreeUsage};
use crate::sync::{Mutex, MutexGuard};

/// Usage of directories whose ancestors are not known yet, and so neither the quotas it counts for.
#[derive(Default)]
pub struct PendingCharges {
    charges: Mutex<HashMap<Ino, (i64, i64)>>,
    /// Notified when there are some: the sooner they are settled, the less can move meanwhile.
    pub(in crate::meta::client) notify: Arc<Notify>,
    /// Held while they are settled, so that a waiter knows that all earlier ones are settled.
    settling: tokio::sync::Mutex<()>,
}

impl PendingCharges {
    fn add(&self, dir: Ino, space: i64, inodes: i64) {
        let mut charges = self.lock();
        let charge = charges.entry(dir).or_default();
        charge.0 += space;
        charge.1 += inodes;
        self.notify.notify_one();
    }

    fn first_dir(&self) -> Option<Ino> {
        self.lock().keys().next().copied()
    }

    fn take(&self, dir: Ino) -> (i64, i64) {
        self.lock().remove(&dir).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, (i64, i64)>> {
        self.charges.lock()
    }
}

impl Meta {
    /// Applies a commit: usage, dir stats, quotas, caches, deletions.
    pub(in crate::meta::client) fn account_commit(&self, changes: &[Change], effects: Effects) {
        for dir in &effects.moved_dirs {
            self.context.parents.forget_moved(*dir);
        }
        for dir in &effects.removed_dirs {
            self.context.parents.forget_removed(*dir);
        }
        self.apply_changes(changes);
        for ino in &effects.changed_nodes {
            self.context.open.forget(*ino);
        }
        let setting = self.context.setting();
        if setting.dir_stats {
            for (dir, delta) in effects.dirs {
                self.dir_stats.add(dir, delta);
                self.charge(dir, delta.space, delta.inodes);
            }
            for SubtreeUsage { dir, space, inodes } in effects.subtrees {
                self.charge(dir, space, inodes);
            }
        }
        if setting.user_group_quota {
            for OwnerUsage { uid, gid, space, inodes } in effects.owners {
                self.context.quotas.charge_owner(uid, gid, space, inodes);
            }
        }
        if !effects.deleted_files.is_empty() {
            self.delete_in_background(&effects.deleted_files, Vec::new());
        }
    }

    fn apply_changes(&self, changes: &[Change]) {
        let usage = &self.context.usage;
        for change in changes {
            self.context.dirs.apply(change);
            match change {
                Change::AddUsage { space, inodes } if self.engine.properties().usage_in_commit => {
                    usage.add_stored(*space, *inodes);
                }
                Change::AddUsage { space, inodes } => usage.add_unsent(*space, *inodes),
                Change::PutAttr(ino, attr) if self.context.quotas.has_dirs() => {
                    self.context.parents.observe(*ino, attr);
                }
                Change::AppendSlices { ino, index, .. }
                | Change::ReplaceSlices { ino, index, .. }
                | Change::RemoveChunk { ino, index } => self.context.open.drop_view(*ino, *index),
                Change::AddSustained(_, ino) => self.delete_on_close(*ino),
                Change::RemoveSustained(sid, ino) if *sid == self.context.sid() => {
                    self.context.open.clear_removed(*ino);
                }
                Change::RemoveDirStat(dir) => self.dir_stats.forget(*dir),
                Change::RemoveDirQuota(dir) => self.context.quotas.forget_dir(*dir),
                _ => {}
            }
        }
    }

    /// Charges every quota from `dir` up.
    fn charge(&self, dir: Ino, space: i64, inodes: i64) {
        if !self.context.quotas.has_dirs() || (space == 0 && inodes == 0) {
            return;
        }
        match AncestorWalk::from(dir).advance(&self.context.parents, &self.context.quotas) {
            WalkStep::Done(dirs) => self.context.quotas.charge_dirs(&dirs, space, inodes),
            WalkStep::NeedAttrs(_) => self.pending_charges.add(dir, space, inodes),
        }
    }

    /// Finds the quotas that pending charges count for. What fails stays pending.
    pub(in crate::meta::client) async fn settle_pending_charges(&self) -> Result<()> {
        let _settling = self.pending_charges.settling.lock().await;
        while let Some(dir) = self.pending_charges.first_dir() {
            let dirs = self.quotas_above(dir).await?;
            let (space, inodes) = self.pending_charges.take(dir);
            self.context.quotas.charge_dirs(&dirs, space, inodes);
        }
        Ok(())
    }

    /// The directory and its ancestors that have a quota, the nearest first; none if it is gone or
    /// in the trash.
    pub(in crate::meta::client) async fn quotas_above(&self, dir: Ino) -> Result<Arc<[Ino]>> {
        let Context { parents, quotas, .. } = &self.context;
        let mut walk = AncestorWalk::from(dir);
        loop {
            match walk.advance(parents, quotas) {
                WalkStep::Done(dirs) => return Ok(dirs),
                WalkStep::NeedAttrs(asked) => {
                    let attrs = self.stored_attrs(&asked).await?;
                    if walk.supply_attrs(parents, &asked, &attrs).is_err() {
                        return Ok(Arc::default());
                    }
                }
            }
        }
    }
}
