//! Quotas as this client knows them: limits, usage, and what it has yet to report.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Mutex;

use super::Meta;
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::{Quota, QuotaKey};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Quotas told of new usage by one request.
const BATCH: usize = 1000;

#[derive(Default)]
pub struct Quotas {
    live: RwLock<HashMap<QuotaKey, Live>>,
    /// Directories with a quota record, and those whose record limits anything.
    dirs: AtomicUsize,
    limited_dirs: AtomicUsize,
    /// Changes whenever other directories have quotas than before.
    generation: AtomicU64,
    /// Loading between sending a delta and noting it as sent would count it twice.
    pub(super) exchange: Mutex<()>,
}

/// A quota as stored, and usage that the store does not know of yet.
#[derive(Debug, Clone, Copy, Default)]
struct Live {
    stored: Quota,
    space: i64,
    inodes: i64,
}

impl Live {
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
    /// Whether any directory has a quota record, whose usage must be kept.
    pub fn has_dirs(&self) -> bool {
        self.dirs.load(Ordering::Acquire) > 0
    }

    /// Whether any directory is limited.
    pub fn limits_dirs(&self) -> bool {
        self.limited_dirs.load(Ordering::Acquire) > 0
    }

    /// The quota, with usage as this client knows it.
    pub fn quota(&self, key: QuotaKey) -> Option<Quota> {
        self.read().get(&key).map(Live::now)
    }

    /// Every quota record, with usage as this client knows it.
    pub fn all(&self) -> Vec<(QuotaKey, Quota)> {
        self.read().iter().map(|(key, quota)| (*key, quota.now())).collect()
    }

    /// Whether the directory has a quota record.
    pub fn has_dir(&self, dir: Ino) -> bool {
        self.read().contains_key(&QuotaKey::Dir(dir))
    }

    /// Stays the same as long as the same directories have quotas.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether so much more would exceed one of these quotas.
    pub fn refuses(
        &self,
        keys: impl IntoIterator<Item = QuotaKey>,
        space: i64,
        inodes: i64,
    ) -> bool {
        let live = self.read();
        keys.into_iter()
            .filter_map(|key| live.get(&key))
            .any(|quota| quota.now().exceeded_by(space, inodes))
    }

    /// Usage of those of the directories that have a quota.
    pub(super) fn charge_dirs(&self, dirs: &[Ino], space: i64, inodes: i64) {
        let mut live = self.write();
        for dir in dirs {
            if let Some(quota) = live.get_mut(&QuotaKey::Dir(*dir)) {
                quota.add(space, inodes);
            }
        }
    }

    /// Usage of an owner, limited or not: it is kept for everyone.
    pub(super) fn charge_owner(&self, uid: u32, gid: u32, space: i64, inodes: i64) {
        let mut live = self.write();
        for key in [QuotaKey::User(uid), QuotaKey::Group(gid)] {
            live.entry(key)
                .or_insert_with(|| Live { stored: Quota::UNLIMITED, ..Live::default() })
                .add(space, inodes);
        }
    }

    pub(super) fn forget_dir(&self, dir: Ino) {
        let mut live = self.write();
        if live.remove(&QuotaKey::Dir(dir)).is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.count(&live);
        }
    }

    /// Takes over what the store says, with what it was not told yet on top. A directory that is
    /// not in `loaded` has no quota any more; an owner may just be new.
    pub(super) fn learn(&self, loaded: Vec<(QuotaKey, Quota)>) {
        let mut live = self.write();
        let keys: HashSet<QuotaKey> = loaded.iter().map(|(key, _)| *key).collect();
        let is_dir = |key: &&QuotaKey| matches!(key, QuotaKey::Dir(_));
        let before: HashSet<QuotaKey> = live.keys().filter(is_dir).copied().collect();
        if keys.iter().filter(is_dir).copied().collect::<HashSet<_>>() != before {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        live.retain(|key, quota| match key {
            QuotaKey::Dir(_) => keys.contains(key),
            _ if keys.contains(key) => true,
            _ => {
                quota.stored = Quota::UNLIMITED;
                quota.space != 0 || quota.inodes != 0
            }
        });
        for (key, quota) in loaded {
            live.entry(key).or_default().stored = quota;
        }
        self.count(&live);
    }

    /// What the store is still to be told.
    fn unsent(&self) -> Vec<(QuotaKey, i64, i64)> {
        self.read()
            .iter()
            .filter(|(_, quota)| quota.space != 0 || quota.inodes != 0)
            .map(|(key, quota)| (*key, quota.space, quota.inodes))
            .collect()
    }

    fn sent(&self, deltas: &[(QuotaKey, i64, i64)]) {
        let mut live = self.write();
        for (key, space, inodes) in deltas {
            if let Some(quota) = live.get_mut(key) {
                quota.add(-space, -inodes);
                quota.stored.used_space += space;
                quota.stored.used_inodes += inodes;
            }
        }
    }

    fn count(&self, live: &HashMap<QuotaKey, Live>) {
        let dirs = || live.iter().filter(|(key, _)| matches!(key, QuotaKey::Dir(_)));
        self.dirs.store(dirs().count(), Ordering::Release);
        let limited = dirs().filter(|(_, quota)| quota.stored.is_limited()).count();
        self.limited_dirs.store(limited, Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<QuotaKey, Live>> {
        self.live.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<QuotaKey, Live>> {
        self.live.write()
    }
}

impl Meta {
    /// Tells the store of usage it was not told yet. What fails stays owed.
    pub async fn flush_quotas(&self) -> Result<()> {
        self.settle_strays().await?;
        let _turn = self.facts.quotas.exchange.lock().await;
        for deltas in self.facts.quotas.unsent().chunks(BATCH) {
            self.engine.add_quota_usage(deltas).await?;
            self.facts.quotas.sent(deltas);
        }
        Ok(())
    }

    /// Asks the store for all quotas in force.
    pub(super) async fn reload_quotas(&self) -> Result<()> {
        let setting = self.facts.setting();
        let _turn = self.facts.quotas.exchange.lock().await;
        let mut loaded = Vec::new();
        if setting.dir_stats || setting.user_group_quota {
            loaded = self.engine.quotas().await?;
            loaded.retain(|(key, _)| match key {
                QuotaKey::Dir(_) => setting.dir_stats,
                QuotaKey::User(_) | QuotaKey::Group(_) => setting.user_group_quota,
            });
        }
        self.facts.quotas.learn(loaded);
        Ok(())
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
        quotas.learn(vec![(DIR, quota)]);
        quotas
    }

    #[test]
    fn unsent_usage_counts_at_once() {
        let quotas = with(limit(8192, 0));
        quotas.charge_dirs(&[Ino(2), Ino::ROOT], 8192, 1);
        assert!(quotas.refuses([DIR], 1, 0));
        assert!(!quotas.refuses([DIR], 0, 1));
        assert!(!quotas.refuses([DIR], -4096, -1));
    }

    #[test]
    fn loading_keeps_what_is_unsent() {
        let quotas = with(limit(8192, 0));
        quotas.charge_dirs(&[Ino(2)], 4096, 1);
        quotas.learn(vec![(DIR, Quota { used_space: 4096, ..limit(8192, 0) })]);
        assert_eq!(quotas.quota(DIR).unwrap().used_space, 8192);
        let deltas = quotas.unsent();
        assert_eq!(deltas, [(DIR, 4096, 1)]);
        quotas.sent(&deltas);
        assert_eq!(quotas.quota(DIR).unwrap().used_space, 8192);
        assert!(quotas.unsent().is_empty());
    }

    #[test]
    fn a_directory_quota_that_is_gone_is_forgotten_and_an_owner_is_not() {
        let quotas = with(limit(1, 1));
        quotas.charge_owner(7, 8, 4096, 1);
        quotas.learn(Vec::new());
        assert!(!quotas.has_dirs());
        assert_eq!(quotas.quota(DIR), None);
        assert_eq!(quotas.quota(QuotaKey::User(7)).unwrap().used_space, 4096);
    }

    #[test]
    fn a_record_without_limits_is_kept_up_and_refuses_nothing() {
        let quotas = with(Quota::UNLIMITED);
        assert!(quotas.has_dirs() && !quotas.limits_dirs());
        quotas.charge_dirs(&[Ino(2)], i64::MAX / 2, 1);
        assert!(!quotas.refuses([DIR], i64::MAX / 4, 1));
        assert_eq!(quotas.unsent().len(), 1);
    }
}
