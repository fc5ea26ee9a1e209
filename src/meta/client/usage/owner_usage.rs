//! Counting what every user and group owns in the whole volume.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::meta::client::tree::walk::{AT_ONCE, Visit, run_work_list};
use crate::meta::client::{Meta, Progress};
use crate::meta::record::{Attr, Quota, QuotaKey};
use crate::meta::{Caller, Ino};
use crate::sync::Mutex;

/// Space and inodes of every owner.
pub(in crate::meta::client) type UsageByOwner = HashMap<QuotaKey, (i64, i64)>;

#[derive(Default)]
struct Tally {
    usage_by_owner: UsageByOwner,
    /// Nodes with several names, which must count once.
    linked: HashSet<Ino>,
}

impl Tally {
    fn add(&mut self, ino: Ino, attr: &Attr) {
        if !attr.is_dir() && attr.nlink > 1 && !self.linked.insert(ino) {
            return;
        }
        for key in [QuotaKey::User(attr.uid), QuotaKey::Group(attr.gid)] {
            let (space, inodes) = self.usage_by_owner.entry(key).or_default();
            *space += attr.space();
            *inodes += 1;
        }
    }
}

impl Meta {
    /// Counts what every owner uses and stores it; limits are kept.
    pub(in crate::meta::client) async fn count_owners(&self) -> Result<()> {
        let limits: HashMap<_, _> = self.engine.quotas().await?.into_iter().collect();
        for (key, (space, inodes)) in self.usage_by_owner().await? {
            let limit = limits.get(&key).copied().unwrap_or(Quota::UNLIMITED);
            let quota = Quota { used_space: space, used_inodes: inodes, ..limit };
            self.engine.put_quota(key, &quota, true).await?;
        }
        self.reload_quotas().await
    }

    /// Usage by owner: of the tree, of the trash, and of removed files that are still open.
    pub(in crate::meta::client) async fn usage_by_owner(&self) -> Result<UsageByOwner> {
        let tally = Mutex::new(Tally::default());
        for top in [Ino::ROOT, Ino::TRASH] {
            if self.stored_attr(top).await?.is_none() {
                continue;
            }
            let work = |visit, limit| self.count_owners_in(top, visit, limit, &tally);
            run_work_list(vec![Visit::top(top)], AT_ONCE, &Progress::default(), work).await?;
        }
        for session in self.engine.sessions().await? {
            let sustained = self.engine.sustained(session.sid).await?;
            let attrs = self.stored_attrs(&sustained).await?;
            let mut tally = tally.lock();
            for (ino, attr) in sustained.iter().zip(attrs) {
                if let Some(attr) = attr {
                    tally.add(*ino, &attr);
                }
            }
        }
        Ok(tally.into_inner().usage_by_owner)
    }

    async fn count_owners_in(
        &self,
        top: Ino,
        visit: Visit,
        limit: usize,
        tally: &Mutex<Tally>,
    ) -> Result<Vec<Visit>> {
        let dir = visit.dir;
        if !visit.is_started() && self.enter(&Caller::root(), top, &visit).await?.is_none() {
            return Ok(Vec::new());
        }
        let mut next = Vec::new();
        let entries = visit.entries_with_attrs(self, limit, &mut next).await?;
        let dirs = self.dirs_among(top, dir, &entries);
        next.extend(dirs.into_iter().map(|below| Visit::below(below, dir)));
        // The hour directories of the trash are not charged to any owner.
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
