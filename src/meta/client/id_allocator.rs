//! Id allocation: inode numbers and slice ids are taken from the store's counters in batches.

use std::ops::Range;

use tokio::sync::Mutex;

use crate::error::Result;
use crate::meta::client::Meta;
use crate::meta::engine::Engine;
use crate::meta::record::Counter;
use crate::meta::{Ino, SliceId};

const INODE_BATCH: i64 = 1024;
const SLICE_BATCH: i64 = 4096;

/// Allocated ids that are not used yet. The rest is lost when the client ends, which is harmless.
pub struct IdAllocator {
    counter: Counter,
    batch: i64,
    left: Mutex<Range<u64>>,
}

impl IdAllocator {
    pub fn inodes() -> Self {
        Self { counter: Counter::NextInode, batch: INODE_BATCH, left: Mutex::new(0..0) }
    }

    pub fn slices() -> Self {
        Self { counter: Counter::NextChunk, batch: SLICE_BATCH, left: Mutex::new(0..0) }
    }

    async fn take(&self, engine: &dyn Engine) -> Result<u64> {
        let mut left = self.left.lock().await;
        loop {
            match left.next() {
                // Slice 0 is the hole, inode 0 is unused, inode 1 is the root.
                Some(id) if id > 1 || (id == 1 && self.counter == Counter::NextChunk) => {
                    return Ok(id);
                }
                Some(_) => {}
                None => {
                    let end = engine.add_counter(self.counter, self.batch).await?;
                    *left = (end - self.batch).cast_unsigned()..end.cast_unsigned();
                }
            }
        }
    }
}

impl Meta {
    pub(in crate::meta::client) async fn new_inode(&self) -> Result<Ino> {
        self.check_not_lost()?;
        Ok(Ino(self.inode_ids.take(self.engine.as_ref()).await?))
    }

    /// A new slice id, for data about to be uploaded.
    pub async fn new_slice(&self) -> Result<SliceId> {
        self.check_not_lost()?;
        Ok(SliceId(self.slice_ids.take(self.engine.as_ref()).await?))
    }
}
