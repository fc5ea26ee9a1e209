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

impl Counter {
    /// The stored name. Redis writes the first letter after `next` of three of them small.
    pub fn name(self) -> &'static str {
        match self {
            Self::UsedSpace => "usedSpace",
            Self::TotalInodes => "totalInodes",
            Self::NextInode => "nextInode",
            Self::NextChunk => "nextChunk",
            Self::NextSession => "nextSession",
            Self::NextTrash => "nextTrash",
            Self::AclMaxId => "aclMaxId",
            Self::LastCleanupSessions => "lastCleanupSessions",
            Self::LastCleanupFiles => "lastCleanupFiles",
            Self::NextCleanupSlices => "nextCleanupSlices",
            Self::LastCleanupTrash => "lastCleanupTrash",
            Self::LastCleanupChangelog => "lastCleanupChangelog",
        }
    }
}
