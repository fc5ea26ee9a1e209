//! Keys and records: what a transaction reads.

use bytes::Bytes;

use crate::meta::record::{
    AclRule, Attr, DirStat, Entry, Flock, Plock, Quota, QuotaKey, Slice, SliceSize,
};
use crate::meta::{Ino, Name, Sid, SliceId};

/// Names a record to read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Attr(Ino),
    /// The attr of a directory as the place of its entries. Adding and removing entries is no
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
    /// The parents of a hard-linked node with their entry counts above 0.
    Parents(Ino),
    Flocks(Ino),
    Plocks(Ino),
    /// Whether the session keeps the inode alive although it has no name any more.
    Sustained(Sid, Ino),
    /// The real number of references. Without a record: 1 on Redis and key-value stores, 0 on SQL.
    SliceRef(SliceId, u32),
    /// The list of slices that compaction replaced by this slice at this unix second.
    Delayed(SliceId, i64),
    DirStat(Ino),
    Quota(QuotaKey),
    Acl(u32),
}

/// The record of a key, one variant per kind. [`Key::Place`] returns an attr.
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

/// An entry and its attr; no attr if the node is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub entry: Entry,
    pub attr: Option<Attr>,
}
