//! Quota limits: setting, listing, deleting and checking them.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::record::attr::align4k;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Quota, QuotaKey, Setting};

/// Limits to set; `None` keeps a limit, 0 removes it.
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
    /// Sets limits. The first quota of its kind enables the accounting for the whole volume. The
    /// usage of a directory without a quota is counted first, entry by entry if `strict`.
    pub async fn quota_set(&self, key: QuotaKey, limits: Limits, strict: bool) -> Result<Quota> {
        self.check_quota_key(key).await?;
        if limits.space.is_none() && limits.inodes.is_none() {
            return Err(Error::bad_input("the quota needs a limit on space or inodes"));
        }
        if limits.space.is_some_and(|max| max < 0) || limits.inodes.is_some_and(|max| max < 0) {
            return Err(Error::bad_input("a quota limit must not be negative"));
        }
        self.enable_accounting(key).await?;
        self.flush_quotas().await?;
        let known = self.engine.quota(key).await?;
        // The usage in a directory's record without limits may be out of date.
        let uncounted = matches!(key, QuotaKey::Dir(_)) && known.is_none_or(|it| it.is_unset());
        let mut quota = known.unwrap_or(Quota::UNLIMITED);
        quota.max_space = limits.space.unwrap_or(quota.max_space);
        quota.max_inodes = limits.inodes.unwrap_or(quota.max_inodes);
        if let (QuotaKey::Dir(dir), true) = (key, uncounted) {
            (quota.used_space, quota.used_inodes) = self.usage_below(dir, strict).await?;
        }
        self.engine.put_quota(key, &quota, uncounted).await?;
        // In the log, -1 stands for a limit that is not set.
        let (max_space, max_inodes) = (limits.space.unwrap_or(-1), limits.inodes.unwrap_or(-1));
        self.log_separately(LogOp::SetQuota { key, max_space, max_inodes }).await;
        self.reload_quotas().await?;
        Ok(quota)
    }

    /// The stored quota; none for a directory without limits.
    pub async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        let quota = self.engine.quota(key).await?;
        Ok(quota.filter(|quota| !matches!(key, QuotaKey::Dir(_)) || !quota.is_unset()))
    }

    /// All quotas with limits.
    pub async fn quota_list(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        let mut quotas = self.engine.quotas().await?;
        quotas.retain(|(_, quota)| !quota.is_unset());
        quotas.sort_by_key(|(key, _)| *key);
        Ok(quotas)
    }

    /// Removes the limits.
    pub async fn quota_delete(&self, key: QuotaKey) -> Result<()> {
        self.check_can_write()?;
        self.engine.remove_quota(key).await?;
        self.log_separately(LogOp::DeleteQuota { key }).await;
        self.reload_quotas().await
    }

    /// Counts the usage below a directory with a quota, and corrects the stored usage if `repair`.
    pub async fn quota_check(&self, dir: Ino, strict: bool, repair: bool) -> Result<QuotaCheck> {
        let key = QuotaKey::Dir(dir);
        if repair {
            self.check_can_write()?;
        }
        self.flush().await?;
        let quota = self
            .quota(key)
            .await?
            .ok_or_else(|| Error::bad_input(format!("directory {dir} has no quota to check")))?;
        let (space, inodes) = self.usage_below(dir, strict).await?;
        let check = QuotaCheck { key, quota, space, inodes };
        if repair && !check.is_right() {
            self.engine.put_quota(key, &check.counted(), true).await?;
            self.reload_quotas().await?;
        }
        Ok(check)
    }

    /// Counts what every user and group owns; returns those whose stored usage is wrong, and
    /// corrects it if `repair`.
    pub async fn quota_check_owners(&self, repair: bool) -> Result<Vec<QuotaCheck>> {
        if repair {
            self.check_can_write()?;
        }
        self.flush().await?;
        let mut counted_usage = self.usage_by_owner().await?;
        let stored: HashMap<_, _> = self
            .engine
            .quotas()
            .await?
            .into_iter()
            .filter(|(key, _)| !matches!(key, QuotaKey::Dir(_)))
            .collect();
        for key in stored.keys() {
            counted_usage.entry(*key).or_default();
        }
        let mut wrong: Vec<QuotaCheck> = counted_usage
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

    /// Space and inodes below a directory, without itself.
    async fn usage_below(&self, dir: Ino, strict: bool) -> Result<(i64, i64)> {
        let sum = self.summary(dir, strict).await?;
        let space = sum.size.cast_signed() - align4k(0);
        Ok((space, (sum.files + sum.dirs).cast_signed() - 1))
    }

    async fn check_quota_key(&self, key: QuotaKey) -> Result<()> {
        self.check_can_write()?;
        let QuotaKey::Dir(dir) = key else { return Ok(()) };
        if dir.is_trash() {
            return Err(Error::bad_input("the trash cannot have a quota"));
        }
        self.stored_attr(dir).await?.ok_or(Error::NotFound)?.into_dir().map(drop)
    }

    async fn enable_accounting(&self, key: QuotaKey) -> Result<()> {
        let is_on = |setting: &Setting| match key {
            QuotaKey::Dir(_) => setting.dir_stats,
            QuotaKey::User(_) | QuotaKey::Group(_) => setting.user_group_quota,
        };
        if is_on(&self.context.setting()) {
            return Ok(());
        }
        // Another client may have changed it since it was loaded.
        self.reload().await?;
        let mut setting = Setting::clone(&self.context.setting());
        if is_on(&setting) {
            return Ok(());
        }
        match key {
            QuotaKey::Dir(_) => setting.dir_stats = true,
            QuotaKey::User(_) | QuotaKey::Group(_) => setting.user_group_quota = true,
        }
        self.init(setting, false).await.map(drop)
    }

    fn check_can_write(&self) -> Result<()> {
        if self.context.options.read_only { Err(Error::ReadOnly) } else { self.check_not_lost() }
    }
}
