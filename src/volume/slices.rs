//! What metadata asks of data, answered by the store.

use std::sync::Arc;

use async_trait::async_trait;

use crate::chunk::{SliceRange, Store};
use crate::error::Result;
use crate::meta::SliceStore;
use crate::meta::record::Slice;
use crate::slice::{SliceId, SliceSize};

pub struct Slices {
    store: Arc<Store>,
}

impl Slices {
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl SliceStore for Slices {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        self.store.remove(slice).await
    }

    async fn rewrite(&self, fragments: &[Slice], id: SliceId, tier: u8) -> Result<()> {
        let fragments: Vec<SliceRange> = fragments.iter().map(fragment).collect();
        self.store.compact(&fragments, id, tier).await
    }
}

fn fragment(slice: &Slice) -> SliceRange {
    let Slice { id, size, off, len, .. } = *slice;
    let start = if id.is_hole() { 0 } else { off };
    SliceRange { slice: SliceSize { id, size }, range: start..start + len }
}
