//! Counting what every user and group owns in the whole volume.

use std::collections::{HashMap, HashSet};

use super::walk::{AT_ONCE, Visit, work_off};
use super::{Caller, Meta, Progress};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::{Attr, Quota, QuotaKey};
use crate::sync::Mutex;

/// Space and inodes of every owner.
pub(super) type Owned = HashMap<QuotaKey, (i64, i64)>;

#[derive(Default)]
struct Tally {
    owned: Owned,
    /// Nodes with several names, which must count once.
    linked: HashSet<Ino>,
}

impl Tally {
    fn add(&mut self, ino: Ino, attr: &Attr) {
        if !attr.is_dir() && attr.nlink > 1 && !self.linked.insert(ino) {
            return;
        }
        for key in [QuotaKey::User(attr.uid), QuotaKey::Group(attr.gid)] {
            let (space, inodes) = self.owned.entry(key).or_default();
            *space += attr.space();
            *inodes += 1;
        }
    }
}

impl Meta {
    /// Counts what everyone owns and stores it; limits stay as they are.
    pub(super) async fn count_owners(&self) -> Result<()> {
        let limits: HashMap<_, _> = self.engine.quotas().await?.into_iter().collect();
        for (key, (space, inodes)) in self.owned().await? {
            let limit = limits.get(&key).copied().unwrap_or(Quota::UNLIMITED);
            let quota = Quota { used_space: space, used_inodes: inodes, ..limit };
            self.engine.put_quota(key, &quota, true).await?;
        }
        self.reload_quotas().await
    }

    /// Everything that counts: the tree, the trash, and removed files that are still open.
    pub(super) async fn owned(&self) -> Result<Owned> {
        let tally = Mutex::new(Tally::default());
        for top in [Ino::ROOT, Ino::TRASH] {
            if self.attr_now(top).await?.is_none() {
                continue;
            }
            let work = |visit, limit| self.count_owners_in(top, visit, limit, &tally);
            work_off(vec![Visit::top(top)], AT_ONCE, &Progress::default(), work).await?;
        }
        for session in self.engine.sessions().await? {
            let sustained = self.engine.sustained(session.sid).await?;
            let attrs = self.attrs_now(&sustained).await?;
            let mut tally = tally.lock();
            for (ino, attr) in sustained.iter().zip(attrs) {
                if let Some(attr) = attr {
                    tally.add(*ino, &attr);
                }
            }
        }
        Ok(tally.into_inner().owned)
    }

    async fn count_owners_in(
        &self,
        top: Ino,
        visit: Visit,
        limit: usize,
        tally: &Mutex<Tally>,
    ) -> Result<Vec<Visit>> {
        let dir = visit.dir;
        if !visit.is_begun() && self.enter(&Caller::root(), top, &visit).await?.is_none() {
            return Ok(Vec::new());
        }
        let mut next = Vec::new();
        let entries = visit.nodes(self, limit, &mut next).await?;
        let dirs = self.dirs_among(top, dir, &entries);
        next.extend(dirs.into_iter().map(|below| Visit::below(below, dir)));
        // Nobody is charged for the hours of the trash.
        if dir != Ino::TRASH {
            let mut tally = tally.lock();
            for entry in entries {
                if let Some(attr) = entry.attr {
                    tally.add(entry.ino, &attr);
                }
            }
        }
        Ok(next)
    }
}
