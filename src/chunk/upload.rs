//! Upload of one slice, block by block.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::task::JoinSet;
use tracing::warn;

use super::{BlockKey, Reserved, Store};
use crate::error::{Error, Result};
use crate::slice::SliceId;

/// Objects of one slice that are deleted at the same time.
const DELETES: usize = 16;

/// A slice on its way into the bucket. Blocks go up as they are given; nothing of it counts before
/// [`Upload::finish`]. One that is dropped before it is finished is aborted in the background.
pub struct Upload {
    store: Arc<Store>,
    id: SliceId,
    tier: u8,
    /// Blocks that may be in the bucket and are nobody's yet.
    blocks: Vec<BlockKey>,
    running: JoinSet<Result<()>>,
    finished: bool,
}

impl Upload {
    pub(super) fn new(store: Arc<Store>, id: SliceId, tier: u8) -> Self {
        let running = JoinSet::new();
        Self { store, id, tier, blocks: Vec::new(), running, finished: false }
    }

    pub fn id(&self) -> SliceId {
        self.id
    }

    /// Starts to upload the block of that number; its memory is given back once it is stored. All
    /// blocks but the last must be full.
    ///
    /// The bytes are not copied on their way to the object store, unless they are packed: then once,
    /// by that.
    pub fn put(&mut self, index: u32, block: Bytes, reserved: Option<Reserved>) {
        let size = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let key = BlockKey { slice: self.id, index, size };
        let (store, tier) = (Arc::clone(&self.store), self.tier);
        self.finished = false;
        self.blocks.push(key);
        let task = async move {
            let outcome = store.store_block(key, block, tier).await;
            drop(reserved);
            outcome
        };
        self.running.spawn_on(task, &self.store.runtime);
    }

    /// Waits until every block is stored. After an error the slice is to be aborted; after success
    /// it stays where it is, unless it is aborted all the same.
    pub async fn finish(&mut self) -> Result<()> {
        while let Some(done) = self.running.join_next().await {
            done.unwrap_or(Err(Error::Interrupted))?;
        }
        self.finished = true;
        Ok(())
    }

    /// Gives the slice up and removes what was stored of it.
    pub async fn abort(mut self) -> Result<()> {
        self.finished = true;
        self.running.shutdown().await;
        discard(&self.store, std::mem::take(&mut self.blocks)).await
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
        self.store.runtime.spawn(async move {
            running.shutdown().await;
            if let Err(error) = discard(&store, blocks).await {
                warn!(slice, %error, "the objects of a slice that was given up stay");
            }
        });
    }
}

impl Store {
    async fn store_block(&self, block: BlockKey, body: Bytes, tier: u8) -> Result<()> {
        let turn = self.bucket.upload_turn().await;
        self.bucket.put(&turn, block, body, tier).await
    }
}

/// Deletes blocks of a slice that never counted.
async fn discard(store: &Store, blocks: Vec<BlockKey>) -> Result<()> {
    let deletes = blocks.into_iter().map(|block| store.bucket.delete(block));
    stream::iter(deletes)
        .buffer_unordered(DELETES)
        .fold(Ok(()), |all: Result<()>, one| async move { all.and(one) })
        .await
}
