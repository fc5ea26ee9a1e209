//! Quotas of directories, users and groups.

use crate::meta::Ino;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaKey {
    Dir(Ino),
    User(u32),
    Group(u32),
}

/// Limits and usage; a limit of 0 or less means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    pub max_space: i64,
    pub max_inodes: i64,
    pub used_space: i64,
    pub used_inodes: i64,
}

impl Quota {
    /// How a record says that nothing is limited; of a directory, that it has no quota.
    pub const UNLIMITED: Quota =
        Quota { max_space: -1, max_inodes: -1, used_space: 0, used_inodes: 0 };

    pub fn is_limited(&self) -> bool {
        self.max_space > 0 || self.max_inodes > 0
    }

    /// Whether the record is only there to keep usage: peers leave one behind for a directory whose
    /// quota was just deleted.
    pub fn is_unset(&self) -> bool {
        self.max_space < 0 && self.max_inodes < 0
    }

    /// Whether so much more would go beyond a limit. Giving back never does.
    pub fn is_exceeded_by(&self, space: i64, inodes: i64) -> bool {
        let exceeds =
            |max: i64, used: i64, more: i64| more > 0 && max > 0 && used.saturating_add(more) > max;
        exceeds(self.max_space, self.used_space, space)
            || exceeds(self.max_inodes, self.used_inodes, inodes)
    }
}
