//! What metadata asks of the data side: deleting slices and writing compacted ones.
//!
//! `meta` does not know blocks or objects; the volume gives it something that does.

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::SliceId;
use crate::meta::record::{Slice, SliceSize};

#[async_trait]
pub trait SliceStore: Send + Sync {
    /// Deletes every object of the slice; one that is not there is fine.
    async fn delete(&self, slice: SliceSize) -> Result<()>;

    /// Reads the fragments (laid end to end, holes as zeros) and writes them as slice `id`.
    async fn rewrite(&self, fragments: &[Slice], id: SliceId, tier: u8) -> Result<()>;
}
