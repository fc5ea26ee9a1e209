//! Dir stats: the usage of a directory's direct entries.

use std::ops::AddAssign;

/// Usage of direct entries, or a change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirStat {
    pub length: i64,
    pub space: i64,
    pub inodes: i64,
}

impl AddAssign for DirStat {
    fn add_assign(&mut self, other: Self) {
        self.length += other.length;
        self.space += other.space;
        self.inodes += other.inodes;
    }
}

impl DirStat {
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub fn is_negative(&self) -> bool {
        self.length < 0 || self.space < 0 || self.inodes < 0
    }
}
