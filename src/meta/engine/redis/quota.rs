//! Quotas of directories, users and groups.

use std::collections::BTreeMap;

use redis::Pipeline;

use super::super::{Engine, Key, Record};
use super::batch::Kind;
use super::names::{self, QuotaNames};
use super::write::{self, text};
use super::{RedisEngine, limits, reply, script};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::{Quota, QuotaKey};

/// Stored for a quota without limits.
const UNLIMITED: i64 = -1;

/// Any key of each kind, to name the kind's hashes.
const KINDS: [QuotaKey; 3] = [QuotaKey::Dir(Ino::NONE), QuotaKey::User(0), QuotaKey::Group(0)];

impl RedisEngine {
    pub(super) async fn all_quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        let [dirs, users, groups] = KINDS;
        let (dirs, users, groups) = futures::try_join!(
            self.quotas_of(dirs),
            self.quotas_of(users),
            self.quotas_of(groups)
        )?;
        Ok(dirs.into_iter().chain(users).chain(groups).collect())
    }

    /// The used inodes say which quotas there are.
    async fn quotas_of(&self, kind: QuotaKey) -> Result<BTreeMap<QuotaKey, Quota>> {
        let quotas = self.names.quotas(kind);
        let mut found = BTreeMap::new();
        let mut cursor = 0;
        loop {
            let (next, pairs) = self.scan_hash(&quotas.inodes, cursor).await?;
            if !pairs.is_empty() {
                let mut pipe = Pipeline::new();
                for key in [&quotas.limits, &quotas.space] {
                    pipe.cmd("HMGET").arg(key);
                    for (field, _) in &pairs {
                        pipe.arg(&field[..]);
                    }
                }
                let mut replies = self.wire.ask(&pipe).await?;
                let limits = replies.options(&quotas.limits)?;
                let spaces = replies.options(&quotas.space)?;
                for (((field, inodes), limits), space) in pairs.iter().zip(limits).zip(spaces) {
                    let key = key_of(kind, field, &quotas)?;
                    let (limits, space) = (limits.as_deref(), space.as_deref());
                    if let Some(quota) =
                        limits::compose(&self.names, key, limits, space, Some(inodes))?
                    {
                        found.insert(key, quota);
                    }
                }
            }
            if next == 0 {
                return Ok(found);
            }
            cursor = next;
        }
    }

    pub(super) async fn one_quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        match self.read(&[Key::Quota(key)]).await?.pop() {
            Some(Record::Quota(quota)) => Ok(quota),
            _ => Ok(None),
        }
    }

    pub(super) async fn save_quota(
        &self,
        key: QuotaKey,
        quota: &Quota,
        usage: bool,
    ) -> Result<bool> {
        let names = self.names.quotas(key);
        let keys = [names.limits, names.space, names.inodes];
        let absent: &[u8] = match key {
            QuotaKey::Dir(_) => &limits::pack(UNLIMITED, UNLIMITED),
            QuotaKey::User(_) | QuotaKey::Group(_) => &[],
        };
        let mut cmd = script::PUT_QUOTA.call(&keys);
        cmd.arg(names::quota_field(key))
            .arg(&limits::pack(quota.max_space, quota.max_inodes)[..])
            .arg(quota.used_space)
            .arg(quota.used_inodes)
            .arg(if usage { "1" } else { "0" })
            .arg(absent);
        Ok(self.wire.ask_one(cmd).await?.int(&keys[0])? == 1)
    }

    pub(super) async fn drop_quota(&self, key: QuotaKey) -> Result<()> {
        self.apply(|batch| match key {
            QuotaKey::Dir(ino) => write::remove_dir_quota(batch, &self.names, ino),
            QuotaKey::User(_) | QuotaKey::Group(_) => {
                let limits = limits::pack(UNLIMITED, UNLIMITED).to_vec();
                let args = [text(names::quota_field(key)), limits.into()];
                batch.call(Kind::Hash, "HSET", &self.names.quotas(key).limits, args);
            }
        })
        .await?;
        Ok(())
    }

    /// Users and groups get a record with their first usage; a directory's quota that was removed
    /// meanwhile stays removed.
    pub(super) async fn add_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        for kind in KINDS {
            let some: Vec<_> = deltas
                .iter()
                .filter(|(key, _, _)| std::mem::discriminant(key) == std::mem::discriminant(&kind))
                .collect();
            let names = self.names.quotas(kind);
            let keys = [names.limits, names.space, names.inodes];
            let create: &[u8] = match kind {
                QuotaKey::Dir(_) => &[],
                QuotaKey::User(_) | QuotaKey::Group(_) => &limits::pack(UNLIMITED, UNLIMITED),
            };
            for some in some.chunks(1000) {
                let mut cmd = script::USE_QUOTA.call(&keys);
                cmd.arg(create);
                for (key, space, inodes) in some {
                    cmd.arg(names::quota_field(*key)).arg(*space).arg(*inodes);
                }
                let mut replies = self.wire.tell_or_unknown(cmd, "adding to quota usage").await?;
                replies.int(&keys[1])?;
            }
        }
        Ok(())
    }

    pub(super) async fn drop_owner_quotas(&self) -> Result<()> {
        self.apply(|batch| {
            for kind in [QuotaKey::User(0), QuotaKey::Group(0)] {
                let names = self.names.quotas(kind);
                for key in [&names.limits, &names.space, &names.inodes] {
                    batch.call(Kind::Any, "DEL", key, []);
                }
            }
        })
        .await?;
        Ok(())
    }
}

fn key_of(kind: QuotaKey, field: &[u8], names: &QuotaNames) -> Result<QuotaKey> {
    let id = reply::id(field, &names.inodes)?;
    let owner = || {
        u32::try_from(id)
            .map_err(|_| Error::damaged(&names.inodes, format!("{id} is not a user or group")))
    };
    Ok(match kind {
        QuotaKey::Dir(_) => QuotaKey::Dir(Ino(id)),
        QuotaKey::User(_) => QuotaKey::User(owner()?),
        QuotaKey::Group(_) => QuotaKey::Group(owner()?),
    })
}
