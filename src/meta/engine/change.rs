//! Changes: what a plan wants written.

use bytes::Bytes;

use crate::meta::record::{Attr, Entry, LockKind, PlockRange, Slice, SliceSize};
use crate::meta::{Ino, LockOwner, Name, Sid, SliceId, Timestamp};

/// One change of one record. Engines apply a plan's changes in order, all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    PutAttr(Ino, Attr),
    RemoveAttr(Ino),
    /// Changes a directory for entries that came or went, whatever others did to it meanwhile: adds
    /// to the link count, and moves mtime and ctime forward to `at`.
    TouchDir {
        ino: Ino,
        links: i64,
        at: Option<Timestamp>,
    },
    PutEntry(Ino, Name, Entry),
    RemoveEntry(Ino, Name),
    /// Adds to the entry count of one parent of a hard-linked node. SQL derives it from entries.
    AddParent {
        ino: Ino,
        parent: Ino,
        count: i64,
    },
    RemoveParents(Ino),
    PutSymlink(Ino, Bytes),
    RemoveSymlink(Ino),
    PutXattr(Ino, Name, Bytes),
    RemoveXattr(Ino, Name),
    RemoveXattrs(Ino),

    /// Appends records to a chunk; with `if_present` only to a chunk that has some already.
    AppendSlices {
        ino: Ino,
        index: u32,
        slices: Vec<Slice>,
        if_present: bool,
    },
    /// Replaces the first `count` records; they are guarded by the plan's read of the chunk,
    /// which holds for this prefix only: records appended meanwhile stay and are no conflict.
    ReplaceSlices {
        ino: Ino,
        index: u32,
        count: usize,
        with: Vec<Slice>,
    },
    RemoveChunk {
        ino: Ino,
        index: u32,
    },

    /// A slice that a write names for the first time. SQL keeps a row of every slice.
    NewSlice(SliceSize),
    /// A slice written by compaction: its reference record exists until the commit is known.
    TrackSlice(SliceSize),
    /// Changes the number of references.
    AddSliceRef {
        slice: SliceSize,
        by: i64,
    },
    RemoveSliceRef(SliceSize),
    PutDelayed {
        id: SliceId,
        at: i64,
        slices: Vec<SliceSize>,
    },
    RemoveDelayed {
        id: SliceId,
        at: i64,
    },

    AddSustained(Sid, Ino),
    RemoveSustained(Sid, Ino),
    PutDeletedFile {
        ino: Ino,
        length: u64,
        at: i64,
    },
    RemoveDeletedFile {
        ino: Ino,
        length: u64,
    },
    PutDetached(Ino, i64),
    RemoveDetached(Ino),

    /// Changes `usedSpace` and `totalInodes`; see [`super::EngineProperties::usage_in_commit`].
    AddUsage {
        space: i64,
        inodes: i64,
    },
    /// The zero stat of a new directory, or a copied one.
    PutDirStat(Ino, crate::meta::record::DirStat),
    RemoveDirStat(Ino),
    /// Removes a directory's quota record, if there is one.
    RemoveDirQuota(Ino),

    PutFlock {
        ino: Ino,
        sid: Sid,
        owner: LockOwner,
        kind: LockKind,
    },
    RemoveFlock {
        ino: Ino,
        sid: Sid,
        owner: LockOwner,
    },
    PutPlock {
        ino: Ino,
        sid: Sid,
        owner: LockOwner,
        ranges: Vec<PlockRange>,
    },
    RemovePlock {
        ino: Ino,
        sid: Sid,
        owner: LockOwner,
    },

    /// A line of the change log.
    Log(String),
}
