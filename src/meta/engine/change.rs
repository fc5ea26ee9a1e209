//! Changes: what a plan writes.

use bytes::Bytes;

use crate::meta::record::{Attr, Entry, LockKind, PlockRange, Slice, SliceSize};
use crate::meta::{Ino, LockOwner, Name, Sid, SliceId, Timestamp};

/// One change of one record. Engines apply the changes of a plan in order, all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    PutAttr(Ino, Attr),
    RemoveAttr(Ino),
    /// Updates a directory after entries were added or removed, regardless of concurrent changes:
    /// adds to the link count, and moves mtime and ctime forward to `at`.
    TouchDir {
        ino: Ino,
        links: i64,
        at: Option<Timestamp>,
    },
    PutEntry(Ino, Name, Entry),
    RemoveEntry(Ino, Name),
    /// Adds to the entry count of one parent of a hard-linked node. SQL derives it from the
    /// entries.
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

    /// Appends records to a chunk; with `if_present`, only to a chunk that has records already.
    AppendSlices {
        ino: Ino,
        index: u32,
        slices: Vec<Slice>,
        if_present: bool,
    },
    /// Replaces the first `count` records. The plan's read of the chunk guards only these: records
    /// appended meanwhile stay and are no conflict.
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

    /// Adds a slice that a write names for the first time. SQL has a row for every slice.
    NewSlice(SliceSize),
    /// Adds a reference record for a slice written by compaction, until the outcome of the commit
    /// is known.
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
    /// Writes the zero stat of a new directory, or the stat of a cloned one.
    PutDirStat(Ino, crate::meta::record::DirStat),
    RemoveDirStat(Ino),
    /// Removes the quota record of a directory, if there is one.
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

    /// Appends a line to the change log.
    Log(String),
}
