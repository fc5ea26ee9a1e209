//! Usage of directories and quotas, updated outside the commits of operations.

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::{DirStat, Quota, QuotaKey};

#[async_trait]
pub trait UsageRecords: Send + Sync {
    /// Adds to each directory's stat. Returns the directories whose stat is missing or would turn
    /// negative: these are left alone, and the caller recounts them.
    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>>;

    /// Writes a directory's stat if the directory still exists. The stat of a directory that was
    /// removed meanwhile would never be removed.
    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()>;

    /// Removes all dir stats, before they are switched on.
    async fn clear_dir_stats(&self) -> Result<()>;

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>>;

    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>>;

    /// Writes the limits and, with `usage`, the usage too. Returns whether the quota is new.
    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool>;

    /// Removes a directory's quota. For a user or group, sets the limits to -1 and keeps the usage.
    async fn remove_quota(&self, key: QuotaKey) -> Result<()>;

    /// Adds (space, inodes) to the usage of each quota.
    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()>;

    /// Removes the usage of users and groups, before their quotas are switched on.
    async fn clear_owner_quotas(&self) -> Result<()>;
}
