//! Quotas of directories, users and groups.

use std::collections::BTreeMap;

use redis::Pipeline;

use super::super::client::reply;
use super::super::transaction::batch::ValueType;
use super::super::transaction::write::{self, text};
use super::super::{RedisEngine, scripts};
use super::keyspace::{self, KeySpace, QuotaHashes};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{Engine, Key, Record};
use crate::meta::record::{Quota, QuotaKey};

/// Stored as a limit that is not set.
const UNLIMITED: i64 = -1;

/// One key of each kind, to look up the kind's hashes.
const KINDS: [QuotaKey; 3] = [QuotaKey::Dir(Ino::NONE), QuotaKey::User(0), QuotaKey::Group(0)];

impl RedisEngine {
    pub(crate) async fn all_quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        let [dirs, users, groups] = KINDS;
        let (dirs, users, groups) = futures::try_join!(
            self.quotas_of(dirs),
            self.quotas_of(users),
            self.quotas_of(groups)
        )?;
        Ok(dirs.into_iter().chain(users).chain(groups).collect())
    }

    /// Returns all quotas of a kind. A quota exists if its used inodes do.
    async fn quotas_of(&self, kind: QuotaKey) -> Result<BTreeMap<QuotaKey, Quota>> {
        let hashes = self.keyspace.quotas(kind);
        let mut found = BTreeMap::new();
        let mut cursor = 0;
        loop {
            let (next, pairs) = self.scan_hash(&hashes.inodes, cursor).await?;
            if !pairs.is_empty() {
                let mut pipe = Pipeline::new();
                for key in [&hashes.limits, &hashes.space] {
                    pipe.cmd("HMGET").arg(key);
                    for (field, _) in &pairs {
                        pipe.arg(&field[..]);
                    }
                }
                let mut replies = self.client.query(&pipe).await?;
                let limits = replies.options(&hashes.limits)?;
                let spaces = replies.options(&hashes.space)?;
                for (((field, inodes), limits), space) in pairs.iter().zip(limits).zip(spaces) {
                    let key = parse_key(kind, field, &hashes)?;
                    let (limits, space) = (limits.as_deref(), space.as_deref());
                    if let Some(quota) =
                        from_stored(&self.keyspace, key, limits, space, Some(inodes))?
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

    pub(crate) async fn one_quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        match self.read(&[Key::Quota(key)]).await?.pop() {
            Some(Record::Quota(quota)) => Ok(quota),
            _ => Ok(None),
        }
    }

    pub(crate) async fn save_quota(
        &self,
        key: QuotaKey,
        quota: &Quota,
        usage: bool,
    ) -> Result<bool> {
        let hashes = self.keyspace.quotas(key);
        let keys = [hashes.limits, hashes.space, hashes.inodes];
        let absent: &[u8] = match key {
            QuotaKey::Dir(_) => &encode_limits(UNLIMITED, UNLIMITED),
            QuotaKey::User(_) | QuotaKey::Group(_) => &[],
        };
        let mut cmd = scripts::PUT_QUOTA.call(&keys);
        cmd.arg(keyspace::quota_field(key))
            .arg(&encode_limits(quota.max_space, quota.max_inodes)[..])
            .arg(quota.used_space)
            .arg(quota.used_inodes)
            .arg(if usage { "1" } else { "0" })
            .arg(absent);
        Ok(self.client.query_one(cmd).await?.int(&keys[0])? == 1)
    }

    pub(crate) async fn drop_quota(&self, key: QuotaKey) -> Result<()> {
        self.apply(|batch| match key {
            QuotaKey::Dir(ino) => write::remove_dir_quota(batch, &self.keyspace, ino),
            QuotaKey::User(_) | QuotaKey::Group(_) => {
                let limits = encode_limits(UNLIMITED, UNLIMITED).to_vec();
                let args = [text(keyspace::quota_field(key)), limits.into()];
                batch.call(ValueType::Hash, "HSET", &self.keyspace.quotas(key).limits, args);
            }
        })
        .await?;
        Ok(())
    }

    /// Adds usage to quotas. Users and groups get a record with their first usage; a directory's quota
    /// that was removed meanwhile stays removed.
    pub(crate) async fn add_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        for kind in KINDS {
            let some: Vec<_> = deltas
                .iter()
                .filter(|(key, _, _)| std::mem::discriminant(key) == std::mem::discriminant(&kind))
                .collect();
            let hashes = self.keyspace.quotas(kind);
            let keys = [hashes.limits, hashes.space, hashes.inodes];
            let create: &[u8] = match kind {
                QuotaKey::Dir(_) => &[],
                QuotaKey::User(_) | QuotaKey::Group(_) => &encode_limits(UNLIMITED, UNLIMITED),
            };
            for some in some.chunks(1000) {
                let mut cmd = scripts::ADD_QUOTA_USAGE.call(&keys);
                cmd.arg(create);
                for (key, space, inodes) in some {
                    cmd.arg(keyspace::quota_field(*key)).arg(*space).arg(*inodes);
                }
                let mut replies = self.client.execute_once(cmd, "adding to quota usage").await?;
                replies.int(&keys[1])?;
            }
        }
        Ok(())
    }

    pub(crate) async fn drop_owner_quotas(&self) -> Result<()> {
        self.apply(|batch| {
            for kind in [QuotaKey::User(0), QuotaKey::Group(0)] {
                let hashes = self.keyspace.quotas(kind);
                for key in [&hashes.limits, &hashes.space, &hashes.inodes] {
                    batch.call(ValueType::Any, "DEL", key, []);
                }
            }
        })
        .await?;
        Ok(())
    }
}

fn parse_key(kind: QuotaKey, field: &[u8], hashes: &QuotaHashes) -> Result<QuotaKey> {
    let id = reply::id(field, &hashes.inodes)?;
    let owner = || {
        u32::try_from(id)
            .map_err(|_| Error::damaged(&hashes.inodes, format!("{id} is not a user or group")))
    };
    Ok(match kind {
        QuotaKey::Dir(_) => QuotaKey::Dir(Ino(id)),
        QuotaKey::User(_) => QuotaKey::User(owner()?),
        QuotaKey::Group(_) => QuotaKey::Group(owner()?),
    })
}

/// Builds a quota from its stored parts. For every client, a quota exists if its used inodes do. A
/// directory's quota without limits was removed, and reappeared with a late flush of its usage: it
/// does not count.
pub(in super::super) fn from_stored(
    keyspace: &KeySpace,
    key: QuotaKey,
    limits: Option<&[u8]>,
    space: Option<&[u8]>,
    inodes: Option<&[u8]>,
) -> Result<Option<Quota>> {
    let hashes = keyspace.quotas(key);
    let Some(inodes) = inodes else { return Ok(None) };
    let (max_space, max_inodes) = match limits {
        Some(raw) => parse_limits(&hashes.limits, raw)?,
        None => (-1, -1),
    };
    if matches!(key, QuotaKey::Dir(_)) && max_space < 0 && max_inodes < 0 {
        return Ok(None);
    }
    Ok(Some(Quota {
        max_space,
        max_inodes,
        used_space: space.map_or(Ok(0), |raw| reply::number(raw, &hashes.space))?,
        used_inodes: reply::number(inodes, &hashes.inodes)?,
    }))
}

fn parse_limits(key: &str, raw: &[u8]) -> Result<(i64, i64)> {
    let number = |part: &[u8]| part.try_into().map(i64::from_be_bytes);
    match raw.split_at_checked(8).map(|(space, inodes)| (number(space), number(inodes))) {
        Some((Ok(space), Ok(inodes))) => Ok((space, inodes)),
        _ => Err(Error::damaged(key, format!("{} bytes instead of 16", raw.len()))),
    }
}

/// Encodes limits as they are stored.
fn encode_limits(space: i64, inodes: i64) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&space.to_be_bytes());
    raw[8..].copy_from_slice(&inodes.to_be_bytes());
    raw
}
