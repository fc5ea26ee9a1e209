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
