//! Counters: the volume's named integers.
//!
//! Above the engines, values follow the convention of the key-value and SQL stores: `NextInode` and
//! `NextChunk` hold the next free id. Redis stores one less, and its engine corrects for that.

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
    /// The unix second of the last write of a load that has not finished. No other client knows it.
    UnfinishedLoad,
}

impl Counter {
    /// Returns the stored name. Redis spells three of them with a lower-case letter after `next`.
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
            Self::UnfinishedLoad => "unfinishedLoad",
        }
    }
}
