//! Ids in batches: inodes and slices are taken from the store's counters many at a time.

use std::ops::Range;

use tokio::sync::Mutex;

use super::Meta;
use crate::error::Result;
use crate::meta::engine::Engine;
use crate::meta::record::Counter;
use crate::meta::{Ino, SliceId};

const INODE_BATCH: i64 = 1024;
const SLICE_BATCH: i64 = 4096;

/// Ids fetched and not used yet. What is left over when the client ends is lost, and harmless.
pub struct Ids {
    counter: Counter,
    batch: i64,
    left: Mutex<Range<u64>>,
}

impl Ids {
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
                // 0 and 1 are never handed out: the hole and the root.
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
    pub(in crate::meta) async fn new_inode(&self) -> Result<Ino> {
        self.check_ours()?;
        Ok(Ino(self.inode_ids.take(self.engine.as_ref()).await?))
    }

    /// A fresh slice id, for data about to be uploaded.
    pub async fn new_slice(&self) -> Result<SliceId> {
        self.check_ours()?;
        Ok(SliceId(self.slice_ids.take(self.engine.as_ref()).await?))
    }
}
