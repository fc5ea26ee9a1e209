//! Upload of one slice, block by block.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use tracing::warn;

use super::staging::LoadedBlock;
use super::{BlockKey, Reserved, Store};
use crate::error::{Error, Result};
use crate::slice::SliceId;

/// An upload of one slice. Blocks are uploaded as they are given. The slice does not count as
/// stored before [`Upload::finish`] succeeds. An upload that is dropped before it is finished is
/// aborted in the background.
pub struct Upload {
    store: Arc<Store>,
    id: SliceId,
    tier: u8,
    /// Whether blocks may be staged instead.
    stages: bool,
    /// Blocks that may be in the bucket while no metadata refers to them yet.
    blocks: Vec<BlockKey>,
    running: JoinSet<Result<()>>,
    finished: bool,
}

impl Upload {
    pub(super) fn new(store: Arc<Store>, id: SliceId, tier: u8, stages: bool) -> Self {
        let running = JoinSet::new();
        Self { store, id, tier, stages, blocks: Vec::new(), running, finished: false }
    }

    pub fn id(&self) -> SliceId {
        self.id
    }

    /// Starts to upload block number `index` and gives its memory back once it is stored. All
    /// blocks but the last must be full.
    ///
    /// The bytes are not copied on their way to the object store, except once by compression.
    pub fn put(&mut self, index: u32, block: Bytes, reserved: Option<Reserved>) {
        let size = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let key = BlockKey { slice: self.id, index, size };
        let (store, tier, stages) = (Arc::clone(&self.store), self.tier, self.stages);
        self.finished = false;
        self.blocks.push(key);
        let loaded = LoadedBlock { body: block, tier, reserved };
        let task = async move { store.store_block(key, loaded, stages).await };
        self.running.spawn_on(task, &self.store.runtime);
    }

    /// Waits until every block is stored. After an error, the caller must abort the upload. After
    /// success, the slice stays unless it is aborted all the same.
    pub async fn finish(&mut self) -> Result<()> {
        while let Some(done) = self.running.join_next().await {
            done.unwrap_or_else(|lost| Err(Error::lost_task("uploading a block", &lost)))?;
        }
        self.finished = true;
        Ok(())
    }

    /// Aborts the upload and deletes the blocks stored so far.
    pub async fn abort(mut self) -> Result<()> {
        self.finished = true;
        self.running.shutdown().await;
        self.store.remove_blocks(std::mem::take(&mut self.blocks)).await
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.finished || self.blocks.is_empty() {
            return;
        }
        let (slice, store) = (self.id.0, Arc::clone(&self.store));
        let (blocks, mut running) =
            (std::mem::take(&mut self.blocks), std::mem::take(&mut self.running));
        self.store.spawn(async move {
            running.shutdown().await;
            if let Err(error) = store.remove_blocks(blocks).await {
                warn!(slice, %error, "cannot delete the objects of an aborted slice");
            }
        });
    }
}

impl Store {
    /// Stores a block: on disk if it may be staged, otherwise in the bucket.
    async fn store_block(
        self: &Arc<Self>,
        block: BlockKey,
        loaded: LoadedBlock,
        stages: bool,
    ) -> Result<()> {
        let staging =
            self.staging.as_ref().filter(|staging| stages && staging.should_stage(block.size));
        if let Some(staging) = staging {
            match staging.stage(block, &loaded.body, loaded.tier).await {
                Ok(()) => {
                    staging.take_over(self, block, loaded);
                    return Ok(());
                }
                Err(error) => staging.count_failure(&error),
            }
        }
        let permit = self.bucket.upload_permit().await;
        // Before the upload, because compression consumes the plain bytes. If the upload fails, the
        // slice is aborted, which also removes the block from the cache.
        if self.options.cache_large_write || block.size < self.layout().block_size {
            self.cache_block(block, &loaded.body);
        }
        let outcome = self.bucket.put(&permit, block, loaded.body, loaded.tier).await;
        drop((permit, loaded.reserved));
        outcome
    }
}

#[cfg(test)]
mod tests;
