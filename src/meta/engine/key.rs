//! Keys and records: what a transaction reads.

use bytes::Bytes;

use crate::meta::record::{
    AclRule, Attr, DirStat, Entry, Flock, Plock, Quota, QuotaKey, Slice, SliceSize,
};
use crate::meta::{Ino, Name, Sid, SliceId};

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Attr(Ino),
    /// The attr of a directory as the place of its entries: what comes and goes in it is no
    /// conflict, so its times and link count are not guarded. See [`Attr::same_place`].
    Place(Ino),
    Entry(Ino, Name),
    /// An entry and the attr it points to, in one round trip.
    Lookup(Ino, Name),
    /// Whether the directory has any entry.
    HasEntries(Ino),
    Chunk(Ino, u32),
    Symlink(Ino),
    Xattr(Ino, Name),
    Xattrs(Ino),
    /// Parents of a hard-linked node with their entry counts; only counts above 0.
    Parents(Ino),
    Flocks(Ino),
    Plocks(Ino),
    /// Whether the session sustains the inode.
    Sustained(Sid, Ino),
    /// Real count of references; 1 if not tracked (R, K), 0 if there is no record (SQL).
    SliceRef(SliceId, u32),
    /// The list of slices that compaction into this slice replaced at this unix second.
    Delayed(SliceId, i64),
    DirStat(Ino),
    Quota(QuotaKey),
    Acl(u32),
}

/// What was read, one variant per key; a place is answered with its attr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Attr(Option<Attr>),
    Entry(Option<Entry>),
    Lookup(Option<Found>),
    HasEntries(bool),
    Chunk(Vec<Slice>),
    Symlink(Option<Bytes>),
    Xattr(Option<Bytes>),
    Xattrs(Vec<(Name, Bytes)>),
    Parents(Vec<(Ino, i64)>),
    Flocks(Vec<Flock>),
    Plocks(Vec<Plock>),
    Sustained(bool),
    SliceRef(i64),
    /// Empty if there is no such list.
    Delayed(Vec<SliceSize>),
    DirStat(Option<DirStat>),
    Quota(Option<Quota>),
    Acl(Option<AclRule>),
}

/// An entry and the node behind it; no attr if the node is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub entry: Entry,
    pub attr: Option<Attr>,
}
