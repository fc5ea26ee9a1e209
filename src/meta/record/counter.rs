//! Counters: the volume's named integers.
//!
//! Values everywhere above the engines follow the KV and SQL convention: `NextInode` and
//! `NextChunk` hold the next free id. Redis stores one less; its engine corrects for that.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counter {
    UsedSpace,
    TotalInodes,
    NextInode,
    NextChunk,
    NextSession,
    NextTrash,
    AclMaxId,
    LastCleanupSessions,
    LastCleanupFiles,
    NextCleanupSlices,
    LastCleanupTrash,
    LastCleanupChangelog,
}
