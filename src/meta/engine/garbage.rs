//! Records of what is waiting for deletion.

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::record::SliceSize;
use crate::meta::{Ino, SliceId};

/// A file whose node is gone and whose chunks are still to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedFile {
    pub ino: Ino,
    pub length: u64,
    /// Unix seconds of the removal.
    pub at: i64,
}

/// A list of slices replaced by compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayedSlices {
    /// The slice that replaced them; part of the record's key.
    pub id: SliceId,
    /// Unix seconds of the compaction; part of the record's key.
    pub at: i64,
    pub slices: Vec<SliceSize>,
}

#[async_trait]
pub trait GarbageRecords: Send + Sync {
    /// Returns files removed at or before `before`.
    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>>;

    /// Returns slices whose reference count is below one.
    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>>;

    /// Returns whether the slice has a reference record of its own. An engine that cannot tell "no
    /// record" from "one reference" returns true when in doubt: the caller deletes nothing then.
    async fn has_slice_ref(&self, slice: SliceSize) -> Result<bool>;

    /// Removes the slice's reference record if it says "one reference" and the absence of a record
    /// means the same (Redis, key-value). [`GarbageRecords::drop_single_refs`] removes the ones
    /// that this call misses.
    async fn drop_single_ref(&self, slice: SliceSize) -> Result<()> {
        let _ = slice;
        Ok(())
    }

    /// Removes all reference records that say "one reference" where the absence of a record means
    /// the same (Redis, key-value).
    async fn drop_single_refs(&self) -> Result<()>;

    /// Returns delayed slice lists written at or before `before`.
    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>>;

    /// Returns detached nodes added at or before `before`.
    async fn detached(&self, before: i64) -> Result<Vec<Ino>>;
}
