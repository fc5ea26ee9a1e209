//! The slices of a volume for `gc`: deletes and rewrites them, and counts both.

use std::sync::Arc;

use async_trait::async_trait;

use crate::chunk::Store;
use crate::cli::progress::{Progress, Tally};
use crate::error::Result;
use crate::meta::SliceStore;
use crate::meta::record::{Slice, SliceSize};
use crate::slice::SliceId;
use crate::volume::slice_range;

pub struct CountedSlices {
    store: Arc<Store>,
    pub deleted: Tally,
    pub rewritten: Tally,
}

impl CountedSlices {
    pub fn new(store: Arc<Store>, shown: &Progress) -> Self {
        let deleted = shown.tally("Cleaned pending slices", None);
        let rewritten = shown.tally("Compacted slices", Some("Compacted data"));
        Self { store, deleted, rewritten }
    }
}

#[async_trait]
impl SliceStore for CountedSlices {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        self.store.remove(slice).await?;
        self.deleted.add(1);
        Ok(())
    }

    async fn rewrite(&self, slices: &[Slice], id: SliceId, tier: u8) -> Result<()> {
        let ranges: Vec<_> = slices.iter().map(slice_range).collect();
        self.store.compact(&ranges, id, tier).await?;
        let bytes = slices.iter().map(|slice| u64::from(slice.len)).sum();
        self.rewritten.add_data(slices.len() as u64, bytes);
        Ok(())
    }
}
