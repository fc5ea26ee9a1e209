//! Slice ids and sizes, which metadata and data have in common.

use std::fmt;

/// The id of a slice; 0 is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceId(pub u64);

impl SliceId {
    pub const HOLE: SliceId = SliceId(0);

    pub fn is_hole(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for SliceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id and the full size of a slice, which determine the keys of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SliceSize {
    pub id: SliceId,
    pub size: u32,
}
