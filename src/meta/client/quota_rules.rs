//! Setting, showing, deleting and checking quotas.

use std::collections::HashMap;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::attr::align4k;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Quota, QuotaKey, Setting};

/// Limits to set; what is not given stays as it is. 0 takes a limit away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub space: Option<i64>,
    pub inodes: Option<i64>,
}

/// A quota, and its usage as counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaCheck {
    pub key: QuotaKey,
    pub quota: Quota,
    pub space: i64,
    pub inodes: i64,
}

impl QuotaCheck {
    pub fn is_right(&self) -> bool {
        self.quota.used_space == self.space && self.quota.used_inodes == self.inodes
    }

    fn counted(&self) -> Quota {
        Quota { used_space: self.space, used_inodes: self.inodes, ..self.quota }
    }
}

impl Meta {
    /// Sets limits. The first quota of its kind switches the accounting on for the whole volume;
    /// the usage of a directory without quota is counted first, by every entry if `strict`.
    pub async fn quota_set(&self, key: QuotaKey, limits: Limits, strict: bool) -> Result<Quota> {
        self.check_quota_key(key).await?;
        if limits.space.is_none() && limits.inodes.is_none() {
            return Err(Error::bad_input("no limit was given for the quota"));
        }
        if limits.space.is_some_and(|max| max < 0) || limits.inodes.is_some_and(|max| max < 0) {
            return Err(Error::bad_input("a limit of a quota is negative"));
        }
        self.switch_on(key).await?;
        self.flush_quotas().await?;
        let known = self.engine.quota(key).await?;
        // A directory's record without limits may be a leftover whose usage nobody has kept.
        let uncounted = matches!(key, QuotaKey::Dir(_)) && known.is_none_or(|it| it.is_unset());
        let mut quota = known.unwrap_or(Quota::UNLIMITED);
        quota.max_space = limits.space.unwrap_or(quota.max_space);
        quota.max_inodes = limits.inodes.unwrap_or(quota.max_inodes);
        if let (QuotaKey::Dir(dir), true) = (key, uncounted) {
            (quota.used_space, quota.used_inodes) = self.usage_below(dir, strict).await?;
        }
        self.engine.put_quota(key, &quota, uncounted).await?;
        // As the log has it, what was not given is -1.
        let (max_space, max_inodes) = (limits.space.unwrap_or(-1), limits.inodes.unwrap_or(-1));
        self.log_apart(LogOp::SetQuota { key, max_space, max_inodes }).await;
        self.reload_quotas().await?;
        Ok(quota)
    }

    /// The quota as stored; nothing for a directory that has none.
    pub async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        let quota = self.engine.quota(key).await?;
        Ok(quota.filter(|quota| !matches!(key, QuotaKey::Dir(_)) || !quota.is_unset()))
    }

    /// Every quota that was set.
    pub async fn quota_list(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        let mut quotas = self.engine.quotas().await?;
        quotas.retain(|(_, quota)| !quota.is_unset());
        quotas.sort_by_key(|(key, _)| *key);
        Ok(quotas)
    }

    /// Takes limits away.
    pub async fn quota_delete(&self, key: QuotaKey) -> Result<()> {
        self.writable()?;
        self.engine.remove_quota(key).await?;
        self.log_apart(LogOp::DeleteQuota { key }).await;
        self.reload_quotas().await
    }

    /// Counts what lies below a directory with a quota, and corrects the quota's usage if asked to.
    pub async fn quota_check(&self, dir: Ino, strict: bool, repair: bool) -> Result<QuotaCheck> {
        let key = QuotaKey::Dir(dir);
        if repair {
            self.writable()?;
        }
        self.flush().await?;
        let quota = self.quota(key).await?.ok_or_else(|| {
            Error::bad_input(format!("directory {dir} has no quota to be checked"))
        })?;
        let (space, inodes) = self.usage_below(dir, strict).await?;
        let check = QuotaCheck { key, quota, space, inodes };
        if repair && !check.is_right() {
            self.engine.put_quota(key, &check.counted(), true).await?;
            self.reload_quotas().await?;
        }
        Ok(check)
    }

    /// Counts what every user and group owns; answers those whose usage is wrong, and corrects it
    /// if asked to.
    pub async fn quota_check_owners(&self, repair: bool) -> Result<Vec<QuotaCheck>> {
        if repair {
            self.writable()?;
        }
        self.flush().await?;
        let mut owned = self.owned().await?;
        let stored: HashMap<_, _> = self
            .engine
            .quotas()
            .await?
            .into_iter()
            .filter(|(key, _)| !matches!(key, QuotaKey::Dir(_)))
            .collect();
        for key in stored.keys() {
            owned.entry(*key).or_default();
        }
        let mut wrong: Vec<QuotaCheck> = owned
            .into_iter()
            .map(|(key, (space, inodes))| {
                let quota = stored.get(&key).copied().unwrap_or(Quota::UNLIMITED);
                QuotaCheck { key, quota, space, inodes }
            })
            .filter(|check| !check.is_right())
            .collect();
        wrong.sort_by_key(|check| check.key);
        if repair {
            for check in &wrong {
                self.engine.put_quota(check.key, &check.counted(), true).await?;
            }
            self.reload_quotas().await?;
        }
        Ok(wrong)
    }

    /// Space and inodes below a directory; itself does not count.
    async fn usage_below(&self, dir: Ino, strict: bool) -> Result<(i64, i64)> {
        let sum = self.summary(dir, strict).await?;
        let space = sum.size.cast_signed() - align4k(0);
        Ok((space, (sum.files + sum.dirs).cast_signed() - 1))
    }

    async fn check_quota_key(&self, key: QuotaKey) -> Result<()> {
        self.writable()?;
        let QuotaKey::Dir(dir) = key else { return Ok(()) };
        if dir.is_trash() {
            return Err(Error::bad_input("the trash cannot have a quota"));
        }
        self.attr_now(dir).await?.ok_or(Error::NotFound)?.into_dir().map(drop)
    }

    async fn switch_on(&self, key: QuotaKey) -> Result<()> {
        let is_on = |setting: &Setting| match key {
            QuotaKey::Dir(_) => setting.dir_stats,
            QuotaKey::User(_) | QuotaKey::Group(_) => setting.user_group_quota,
        };
        if is_on(&self.facts.setting()) {
            return Ok(());
        }
        // Another client may have changed it since this one looked.
        self.reload().await?;
        let mut setting = Setting::clone(&self.facts.setting());
        if is_on(&setting) {
            return Ok(());
        }
        match key {
            QuotaKey::Dir(_) => setting.dir_stats = true,
            QuotaKey::User(_) | QuotaKey::Group(_) => setting.user_group_quota = true,
        }
        self.init(setting, false).await.map(drop)
    }

    fn writable(&self) -> Result<()> {
        if self.facts.options.read_only { Err(Error::ReadOnly) } else { self.check_ours() }
    }
}
