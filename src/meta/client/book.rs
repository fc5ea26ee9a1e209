//! Booking: what follows from a commit, once.
//!
//! Nothing here waits or fails: what the store must be told is owed, and told by the flush tasks.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

use super::Meta;
use super::facts::Facts;
use super::parents::{Climb, Step};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::Change;
use crate::meta::plan::Effects;
use crate::sync::{Mutex, MutexGuard};

/// Usage of directories whose ancestors are not known yet, so that nobody knows whose quotas it
/// counts for.
#[derive(Default)]
pub struct Strays {
    charges: Mutex<HashMap<Ino, (i64, i64)>>,
    /// Rings when there are some: the sooner they are settled, the less can move meanwhile.
    pub(super) bell: Arc<Notify>,
    /// Who waits for this knows that all that were there before are settled.
    settling: tokio::sync::Mutex<()>,
}

impl Strays {
    fn add(&self, dir: Ino, space: i64, inodes: i64) {
        let mut charges = self.lock();
        let charge = charges.entry(dir).or_default();
        charge.0 += space;
        charge.1 += inodes;
        self.bell.notify_one();
    }

    fn any(&self) -> Option<Ino> {
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
    /// Books a commit: usage, statistics, quotas, caches, garbage.
    pub(in crate::meta) fn book(&self, changes: &[Change], effects: Effects) {
        for dir in &effects.moved {
            self.facts.parents.moved(*dir);
        }
        for dir in &effects.gone {
            self.facts.parents.removed(*dir);
        }
        self.book_changes(changes);
        for ino in &effects.stale {
            self.facts.open.forget(*ino);
        }
        let setting = self.facts.setting();
        if setting.dir_stats {
            for (dir, delta) in effects.dirs {
                self.dir_stats.add(dir, delta);
                self.charge(dir, delta.space, delta.inodes);
            }
            for (dir, space, inodes) in effects.quotas {
                self.charge(dir, space, inodes);
            }
        }
        if setting.user_group_quota {
            for (uid, gid, space, inodes) in effects.owners {
                self.facts.quotas.charge_owner(uid, gid, space, inodes);
            }
        }
        if !effects.deleted.is_empty() || !effects.dead.is_empty() {
            self.collect(&effects.deleted, effects.dead);
        }
    }

    fn book_changes(&self, changes: &[Change]) {
        let usage = &self.facts.usage;
        for change in changes {
            self.facts.dirs.changed(change);
            match change {
                Change::AddUsage { space, inodes } if self.engine.properties().usage_in_commit => {
                    usage.committed(*space, *inodes);
                }
                Change::AddUsage { space, inodes } => usage.owe(*space, *inodes),
                Change::PutAttr(ino, attr) if self.facts.quotas.has_dirs() => {
                    self.facts.parents.saw(*ino, attr);
                }
                Change::AppendSlices { ino, index, .. }
                | Change::ReplaceSlices { ino, index, .. }
                | Change::RemoveChunk { ino, index } => self.facts.open.drop_view(*ino, *index),
                Change::AddSustained(_, ino) => self.sustain(*ino),
                Change::RemoveSustained(sid, ino) if *sid == self.facts.sid() => {
                    self.facts.open.named(*ino);
                }
                Change::RemoveDirStat(dir) => self.dir_stats.forget(*dir),
                Change::RemoveDirQuota(dir) => self.facts.quotas.forget_dir(*dir),
                _ => {}
            }
        }
    }

    /// Usage of every quota from `dir` up.
    fn charge(&self, dir: Ino, space: i64, inodes: i64) {
        if !self.facts.quotas.has_dirs() || (space == 0 && inodes == 0) {
            return;
        }
        match Climb::from(dir).go_on(&self.facts.parents, &self.facts.quotas) {
            Step::Done(dirs) => self.facts.quotas.charge_dirs(&dirs, space, inodes),
            Step::Ask(_) => self.strays.add(dir, space, inodes),
        }
    }

    /// Finds out which quotas the strays count for. What fails stays a stray.
    pub(super) async fn settle_strays(&self) -> Result<()> {
        let _turn = self.strays.settling.lock().await;
        while let Some(dir) = self.strays.any() {
            let dirs = self.quotas_above(dir).await?;
            let (space, inodes) = self.strays.take(dir);
            self.facts.quotas.charge_dirs(&dirs, space, inodes);
        }
        Ok(())
    }

    /// Those of a directory and all above it that have a quota, the nearest first; none for what is
    /// gone or in the trash.
    pub(super) async fn quotas_above(&self, dir: Ino) -> Result<Arc<[Ino]>> {
        let Facts { parents, quotas, .. } = &self.facts;
        let mut climb = Climb::from(dir);
        loop {
            match climb.go_on(parents, quotas) {
                Step::Done(dirs) => return Ok(dirs),
                Step::Ask(asked) => {
                    let attrs = self.attrs_now(&asked).await?;
                    if climb.hear(parents, &asked, &attrs).is_err() {
                        return Ok(Arc::default());
                    }
                }
            }
        }
    }
}
