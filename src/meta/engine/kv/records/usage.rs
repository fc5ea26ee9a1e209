//! Dir stats and quotas, flushed outside the operations' commits.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::UsageRecords;
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::engine::kv::values::fixed;
use crate::meta::record::{DirStat, Quota, QuotaKey};

/// Dir stats changed by one transaction. Few, since other clients flush the same directories.
const DIR_STATS: usize = 20;

#[async_trait]
impl UsageRecords for KvEngine {
    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        let mut sums: BTreeMap<Ino, DirStat> = BTreeMap::new();
        for (ino, delta) in deltas {
            *sums.entry(*ino).or_default() += *delta;
        }
        let sums: Vec<(Ino, DirStat)> = sums.into_iter().collect();
        let mut unapplied = Vec::new();
        for some in sums.chunks(DIR_STATS) {
            let keys: Vec<Vec<u8>> =
                some.iter().map(|(ino, _)| StoreKey::DirStat(*ino).encode()).collect();
            let missed = self
                .update("adding to dir stats", &keys, |values| {
                    let mut writes = Vec::new();
                    let mut missed = Vec::new();
                    for (((ino, delta), key), value) in some.iter().zip(&keys).zip(values) {
                        let mut stat = value.as_deref().map(DirStat::decode).transpose()?;
                        if let Some(stat) = &mut stat {
                            *stat += *delta;
                        }
                        match stat.filter(|stat| !stat.is_negative()) {
                            Some(stat) => {
                                writes.push((key.clone(), Some(fixed(stat.encode()))));
                            }
                            None => missed.push(*ino),
                        }
                    }
                    Ok((writes, missed))
                })
                .await?;
            unapplied.extend(missed);
        }
        Ok(unapplied)
    }

    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        let node = StoreKey::Attr(ino).encode();
        self.update("storing a dir stat", &[node], |values| {
            let writes = match values[0] {
                Some(_) => {
                    vec![(StoreKey::DirStat(ino).encode(), Some(fixed(stat.encode())))]
                }
                None => Vec::new(),
            };
            Ok((writes, ()))
        })
        .await
    }

    async fn clear_dir_stats(&self) -> Result<()> {
        let is_stat = |key: &[u8]| matches!(StoreKey::decode(key), Some(StoreKey::DirStat(_)));
        let keys = self.keys_under(prefix::DIR_STATS, is_stat).await?;
        self.delete_all("clearing dir stats", keys).await
    }

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        let mut quotas = Vec::new();
        for kind in [prefix::DIR_QUOTAS, prefix::USER_QUOTAS, prefix::GROUP_QUOTAS] {
            self.walk(Scan::prefix(kind.to_vec()), |key, value| {
                if let Some(StoreKey::Quota(quota)) = StoreKey::decode(key) {
                    quotas.push((quota, Quota::decode(&value)?));
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        }
        Ok(quotas)
    }

    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        let raw = self.one(&StoreKey::Quota(key)).await?;
        raw.as_deref().map(Quota::decode).transpose()
    }

    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool> {
        let key = StoreKey::Quota(key).encode();
        self.update("storing a quota", std::slice::from_ref(&key), |values| {
            let old = values[0].as_deref().map(Quota::decode).transpose()?;
            let counted = if usage { *quota } else { old.unwrap_or_default() };
            let new = Quota {
                max_space: quota.max_space,
                max_inodes: quota.max_inodes,
                used_space: counted.used_space,
                used_inodes: counted.used_inodes,
            };
            Ok((vec![(key.clone(), Some(fixed(new.encode())))], old.is_none()))
        })
        .await
    }

    async fn remove_quota(&self, key: QuotaKey) -> Result<()> {
        let raw_key = StoreKey::Quota(key).encode();
        self.update("removing a quota", std::slice::from_ref(&raw_key), |values| {
            let Some(raw) = &values[0] else { return Ok((Vec::new(), ())) };
            let left = match key {
                QuotaKey::Dir(_) => None,
                QuotaKey::User(_) | QuotaKey::Group(_) => {
                    let unset = Quota { max_space: -1, max_inodes: -1, ..Quota::decode(raw)? };
                    Some(fixed(unset.encode()))
                }
            };
            Ok((vec![(raw_key.clone(), left)], ()))
        })
        .await
    }

    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        let mut sums: BTreeMap<QuotaKey, (i64, i64)> = BTreeMap::new();
        for (key, space, inodes) in deltas {
            let sum = sums.entry(*key).or_default();
            *sum = (sum.0 + space, sum.1 + inodes);
        }
        let keys: Vec<Vec<u8>> = sums.keys().map(|key| StoreKey::Quota(*key).encode()).collect();
        self.update("adding to quotas", &keys, |values| {
            let mut writes = Vec::new();
            for (((quota_key, (space, inodes)), key), raw) in sums.iter().zip(&keys).zip(values) {
                let stored = raw.as_deref().map(Quota::decode).transpose()?;
                // A directory without a record has no quota. The usage of users and groups is
                // counted whether they have a quota or not.
                let quota = match quota_key {
                    QuotaKey::Dir(_) => stored,
                    QuotaKey::User(_) | QuotaKey::Group(_) => {
                        Some(stored.unwrap_or(Quota::UNLIMITED))
                    }
                };
                if let Some(mut quota) = quota {
                    quota.used_space += space;
                    quota.used_inodes += inodes;
                    writes.push((key.clone(), Some(fixed(quota.encode()))));
                }
            }
            Ok((writes, ()))
        })
        .await
    }

    async fn clear_owner_quotas(&self) -> Result<()> {
        for kind in [prefix::USER_QUOTAS, prefix::GROUP_QUOTAS] {
            let keys = self.keys_under(kind, |_| true).await?;
            self.delete_all("clearing quotas", keys).await?;
        }
        Ok(())
    }
}
