//! What metadata asks of data, answered by the store.

use std::sync::Arc;

use async_trait::async_trait;

use crate::chunk::{Fragment, Store};
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
        let fragments: Vec<Fragment> = fragments.iter().map(fragment).collect();
        self.store.rewrite(&fragments, id, tier).await
    }
}

fn fragment(slice: &Slice) -> Fragment {
    let Slice { id, size, off, len, .. } = *slice;
    Fragment { slice: SliceSize { id, size }, off, len }
}
