//! Quotas as this client knows them: limits, usage, and usage that the store does not know yet.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Mutex;

use crate::meta::Ino;
use crate::meta::record::{Quota, QuotaKey};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[derive(Default)]
pub struct Quotas {
    tracked: RwLock<HashMap<QuotaKey, TrackedQuota>>,
    /// Directories with a quota record, and those of them whose record sets a limit.
    dirs: AtomicUsize,
    limited_dirs: AtomicUsize,
    /// Changes whenever the set of directories with quotas changes.
    generation: AtomicU64,
    /// Held while quotas are loaded or sent: a load between sending usage and marking it as sent
    /// would count it twice.
    pub(in crate::meta) exchange: Mutex<()>,
}

/// A quota as stored, and usage that the store does not know yet.
#[derive(Debug, Clone, Copy, Default)]
struct TrackedQuota {
    stored: Quota,
    space: i64,
    inodes: i64,
}

impl TrackedQuota {
    fn now(&self) -> Quota {
        Quota {
            used_space: self.stored.used_space + self.space,
            used_inodes: self.stored.used_inodes + self.inodes,
            ..self.stored
        }
    }

    fn add(&mut self, space: i64, inodes: i64) {
        self.space += space;
        self.inodes += inodes;
    }
}

impl Quotas {
    /// Whether any directory has a quota record, whose usage must be tracked.
    pub fn has_dirs(&self) -> bool {
        self.dirs.load(Ordering::Acquire) > 0
    }

    /// Whether any directory quota sets a limit.
    pub fn limits_dirs(&self) -> bool {
        self.limited_dirs.load(Ordering::Acquire) > 0
    }

    /// The quota, with unsent usage included.
    pub fn quota(&self, key: QuotaKey) -> Option<Quota> {
        self.read().get(&key).map(TrackedQuota::now)
    }

    /// Every quota record, with unsent usage included.
    pub fn all(&self) -> Vec<(QuotaKey, Quota)> {
        self.read().iter().map(|(key, quota)| (*key, quota.now())).collect()
    }

    /// Whether the directory has a quota record.
    pub fn has_dir(&self, dir: Ino) -> bool {
        self.read().contains_key(&QuotaKey::Dir(dir))
    }

    /// Changes whenever the set of directories with quotas changes.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether this much more usage would exceed one of these quotas.
    pub fn would_exceed(
        &self,
        keys: impl IntoIterator<Item = QuotaKey>,
        space: i64,
        inodes: i64,
    ) -> bool {
        let tracked = self.read();
        keys.into_iter()
            .filter_map(|key| tracked.get(&key))
            .any(|quota| quota.now().exceeded_by(space, inodes))
    }

    /// Charges usage to those of the directories that have a quota.
    pub(in crate::meta) fn charge_dirs(&self, dirs: &[Ino], space: i64, inodes: i64) {
        let mut tracked = self.write();
        for dir in dirs {
            if let Some(quota) = tracked.get_mut(&QuotaKey::Dir(*dir)) {
                quota.add(space, inodes);
            }
        }
    }

    /// Charges usage to a user and a group. It is tracked for all owners, with or without limits.
    pub(in crate::meta) fn charge_owner(&self, uid: u32, gid: u32, space: i64, inodes: i64) {
        let mut tracked = self.write();
        for key in [QuotaKey::User(uid), QuotaKey::Group(gid)] {
            tracked
                .entry(key)
                .or_insert_with(|| TrackedQuota {
                    stored: Quota::UNLIMITED,
                    ..TrackedQuota::default()
                })
                .add(space, inodes);
        }
    }

    pub(in crate::meta) fn forget_dir(&self, dir: Ino) {
        let mut tracked = self.write();
        if tracked.remove(&QuotaKey::Dir(dir)).is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.count(&tracked);
        }
    }

    /// Replaces the quotas by those of the store and keeps unsent usage. A directory that is
    /// missing in `loaded` has no quota any more; an owner may just be new.
    pub(in crate::meta) fn set_stored(&self, loaded: Vec<(QuotaKey, Quota)>) {
        let mut tracked = self.write();
        let keys: HashSet<QuotaKey> = loaded.iter().map(|(key, _)| *key).collect();
        let is_dir = |key: &&QuotaKey| matches!(key, QuotaKey::Dir(_));
        let before: HashSet<QuotaKey> = tracked.keys().filter(is_dir).copied().collect();
        if keys.iter().filter(is_dir).copied().collect::<HashSet<_>>() != before {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        tracked.retain(|key, quota| match key {
            QuotaKey::Dir(_) => keys.contains(key),
            _ if keys.contains(key) => true,
            _ => {
                quota.stored = Quota::UNLIMITED;
                quota.space != 0 || quota.inodes != 0
            }
        });
        for (key, quota) in loaded {
            tracked.entry(key).or_default().stored = quota;
        }
        self.count(&tracked);
    }

    /// Usage that the store does not know yet.
    pub(in crate::meta) fn unsent(&self) -> Vec<(QuotaKey, i64, i64)> {
        self.read()
            .iter()
            .filter(|(_, quota)| quota.space != 0 || quota.inodes != 0)
            .map(|(key, quota)| (*key, quota.space, quota.inodes))
            .collect()
    }

    pub(in crate::meta) fn mark_sent(&self, deltas: &[(QuotaKey, i64, i64)]) {
        let mut tracked = self.write();
        for (key, space, inodes) in deltas {
            if let Some(quota) = tracked.get_mut(key) {
                quota.add(-space, -inodes);
                quota.stored.used_space += space;
                quota.stored.used_inodes += inodes;
            }
        }
    }

    fn count(&self, tracked: &HashMap<QuotaKey, TrackedQuota>) {
        let dirs = || tracked.iter().filter(|(key, _)| matches!(key, QuotaKey::Dir(_)));
        self.dirs.store(dirs().count(), Ordering::Release);
        let limited = dirs().filter(|(_, quota)| quota.stored.is_limited()).count();
        self.limited_dirs.store(limited, Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<QuotaKey, TrackedQuota>> {
        self.tracked.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<QuotaKey, TrackedQuota>> {
        self.tracked.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: QuotaKey = QuotaKey::Dir(Ino(2));

    fn limit(max_space: i64, max_inodes: i64) -> Quota {
        Quota { max_space, max_inodes, used_space: 0, used_inodes: 0 }
    }

    fn with(quota: Quota) -> Quotas {
        let quotas = Quotas::default();
        quotas.set_stored(vec![(DIR, quota)]);
        quotas
    }

    #[test]
    fn unsent_usage_counts_at_once() {
        let quotas = with(limit(8192, 0));
        quotas.charge_dirs(&[Ino(2), Ino::ROOT], 8192, 1);
        assert!(quotas.would_exceed([DIR], 1, 0));
        assert!(!quotas.would_exceed([DIR], 0, 1));
        assert!(!quotas.would_exceed([DIR], -4096, -1));
    }

    #[test]
    fn loading_keeps_what_is_unsent() {
        let quotas = with(limit(8192, 0));
        quotas.charge_dirs(&[Ino(2)], 4096, 1);
        quotas.set_stored(vec![(DIR, Quota { used_space: 4096, ..limit(8192, 0) })]);
        assert_eq!(quotas.quota(DIR).unwrap().used_space, 8192);
        let deltas = quotas.unsent();
        assert_eq!(deltas, [(DIR, 4096, 1)]);
        quotas.mark_sent(&deltas);
        assert_eq!(quotas.quota(DIR).unwrap().used_space, 8192);
        assert!(quotas.unsent().is_empty());
    }

    #[test]
    fn a_directory_quota_that_is_gone_is_forgotten_and_an_owner_is_not() {
        let quotas = with(limit(1, 1));
        quotas.charge_owner(7, 8, 4096, 1);
        quotas.set_stored(Vec::new());
        assert!(!quotas.has_dirs());
        assert_eq!(quotas.quota(DIR), None);
        assert_eq!(quotas.quota(QuotaKey::User(7)).unwrap().used_space, 4096);
    }

    #[test]
    fn a_record_without_limits_is_tracked_and_refuses_nothing() {
        let quotas = with(Quota::UNLIMITED);
        assert!(quotas.has_dirs() && !quotas.limits_dirs());
        quotas.charge_dirs(&[Ino(2)], i64::MAX / 2, 1);
        assert!(!quotas.would_exceed([DIR], i64::MAX / 4, 1));
        assert_eq!(quotas.unsent().len(), 1);
    }
}
