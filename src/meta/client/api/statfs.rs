//! Statfs: size and free space of the volume, as seen from a directory.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::context::ancestors::{AncestorWalk, WalkStep};
use crate::meta::record::{Quota, QuotaKey};

/// A slow store must not make `df` hang: after this time cached usage is returned.
const USAGE_TIMEOUT: Duration = Duration::from_millis(150);
/// The least that a volume without limits shows.
const SHOWN_SPACE: u64 = 1 << 50;
const SHOWN_INODES: u64 = 10 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFs {
    /// Bytes.
    pub total: u64,
    pub available: u64,
    pub used_inodes: u64,
    pub available_inodes: u64,
}

impl Meta {
    /// Statistics of the volume as seen from `ino`: quotas of its ancestors limit what is
    /// available, and the usage of the nearest one is shown as used.
    pub async fn statfs(&self, ino: Ino) -> Result<StatFs> {
        let (space, inodes) = self.volume_usage().await;
        let setting = self.context.setting();
        let mut stat = StatFs::of_volume(space, inodes, setting.capacity, setting.inodes);
        if setting.dir_stats && self.context.quotas.has_dirs() {
            let above = self.quotas_above(self.dir_of(ino).await?).await?;
            stat.apply_quotas(above.iter().filter_map(|dir| {
                self.context.quotas.quota(QuotaKey::Dir(*dir)).filter(|quota| !quota.is_unset())
            }));
        }
        Ok(stat)
    }

    /// As [`Meta::statfs`] for a directory, from cached values only.
    pub fn known_statfs(&self, dir: Ino) -> StatFs {
        let (space, inodes) = self.known_usage();
        let setting = self.context.setting();
        let mut stat = StatFs::of_volume(space, inodes, setting.capacity, setting.inodes);
        let mut walk = AncestorWalk::from(dir);
        if let WalkStep::Done(above) = walk.advance(&self.context.parents, &self.context.quotas) {
            stat.apply_quotas(above.iter().filter_map(|dir| {
                self.context.quotas.quota(QuotaKey::Dir(*dir)).filter(|quota| !quota.is_unset())
            }));
        }
        stat
    }

    async fn volume_usage(&self) -> (u64, u64) {
        let usage = &self.context.usage;
        if !self.context.options.fast_statfs || !usage.is_known() {
            // Late or failed: cached usage is good enough.
            let _ = tokio::time::timeout(USAGE_TIMEOUT, self.reload_usage()).await;
        }
        self.known_usage()
    }

    fn known_usage(&self) -> (u64, u64) {
        let (space, inodes) = self.context.usage.now();
        (space.max(0).cast_unsigned(), inodes.max(0).cast_unsigned())
    }

    /// The directory itself, or the parent of a file.
    async fn dir_of(&self, ino: Ino) -> Result<Ino> {
        if ino == Ino::ROOT {
            return Ok(ino);
        }
        let attr = self.stored_attr(ino).await?.ok_or(Error::NotFound)?;
        Ok(if attr.is_dir() { ino } else { attr.parent })
    }
}

impl StatFs {
    fn of_volume(space: u64, inodes: u64, capacity: u64, max_inodes: u64) -> Self {
        let mut total = capacity.max(space);
        if capacity == 0 {
            total = SHOWN_SPACE;
            // At least a fifth of the shown space is free, unless the total would overflow.
            while u128::from(total) * 8 < u128::from(space) * 10 && total < u64::MAX {
                total = total.saturating_mul(2);
            }
        }
        let mut available_inodes = max_inodes.saturating_sub(inodes);
        if max_inodes == 0 {
            available_inodes = SHOWN_INODES;
            while u128::from(inodes) > u128::from(available_inodes) * 4 {
                available_inodes = available_inodes.saturating_mul(2);
            }
        }
        Self { total, available: total - space, used_inodes: inodes, available_inodes }
    }

    /// Applies the quotas above a directory, the nearest first.
    fn apply_quotas(&mut self, quotas: impl Iterator<Item = Quota>) {
        let left = |max: i64, used: i64| max.saturating_sub(used.max(0)).max(0).cast_unsigned();
        let mut nearest = None;
        for quota in quotas {
            nearest.get_or_insert(quota);
            if quota.max_space > 0 {
                self.available = self.available.min(left(quota.max_space, quota.used_space));
            }
            if quota.max_inodes > 0 {
                self.available_inodes =
                    self.available_inodes.min(left(quota.max_inodes, quota.used_inodes));
            }
        }
        if let Some(quota) = nearest {
            self.total = quota.used_space.max(0).cast_unsigned().saturating_add(self.available);
            self.used_inodes = quota.used_inodes.max(0).cast_unsigned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_without_limits_never_looks_full() {
        let empty = StatFs::of_volume(0, 0, 0, 0);
        assert_eq!((empty.total, empty.available), (1 << 50, 1 << 50));
        assert_eq!(empty.available_inodes, 10 << 20);
        let large = StatFs::of_volume(1 << 50, 100 << 20, 0, 0);
        assert_eq!((large.total, large.available), (2 << 50, 1 << 50));
        assert_eq!(large.available_inodes, 40 << 20);
        let most = StatFs::of_volume(u64::MAX, u64::MAX, 0, 0);
        assert_eq!(most.available, 0);
    }

    #[test]
    fn an_exceeded_limit_leaves_nothing_available() {
        let full = StatFs::of_volume(10 << 12, 12, 8 << 12, 10);
        let want = StatFs { total: 10 << 12, available: 0, used_inodes: 12, available_inodes: 0 };
        assert_eq!(full, want);
    }

    #[test]
    fn the_tightest_quota_limits_free_space_and_the_nearest_shows_usage() {
        let quota = |max_space, used_space, max_inodes, used_inodes| Quota {
            max_space,
            max_inodes,
            used_space,
            used_inodes,
        };
        let mut stat = StatFs::of_volume(1 << 30, 1000, 1 << 40, 0);
        stat.apply_quotas([quota(0, 4096, 10, 3), quota(1 << 20, 8192, 0, 5)].into_iter());
        let available = (1 << 20) - 8192;
        let want =
            StatFs { total: 4096 + available, available, used_inodes: 3, available_inodes: 7 };
        assert_eq!(stat, want);
    }
}
