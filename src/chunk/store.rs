//! Slices in the bucket: read in ranges, uploaded block by block, removed whole.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{BlockKey, Compression, Layout, Reserved};
use crate::error::{Error, Result};
use crate::object::ObjectStore;
use crate::slice::{SliceId, SliceSize};

/// Uploads at the same time, unless told otherwise.
const MAX_UPLOADS: usize = 20;

/// The data of one volume.
pub struct Store {
    bucket: Arc<dyn ObjectStore>,
    layout: Layout,
    compression: Compression,
    uploads: Semaphore,
}

/// A slice on its way into the bucket. Blocks go up as they are given; nothing of it counts before
/// [`Upload::finish`].
pub struct Upload {
    store: Arc<Store>,
    id: SliceId,
    tier: u8,
    blocks: Vec<BlockKey>,
    running: JoinSet<Result<()>>,
}

impl Store {
    pub fn new(
        bucket: Arc<dyn ObjectStore>,
        layout: Layout,
        compression: Compression,
    ) -> Arc<Self> {
        Arc::new(Self { bucket, layout, compression, uploads: Semaphore::new(MAX_UPLOADS) })
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Begins a slice.
    pub fn upload(self: &Arc<Self>, id: SliceId, tier: u8) -> Upload {
        let store = Arc::clone(self);
        Upload { store, id, tier, blocks: Vec::new(), running: JoinSet::new() }
    }

    /// Bytes `range` of a slice, in pieces laid end to end.
    pub async fn read(&self, slice: SliceSize, range: Range<u32>) -> Result<Vec<Bytes>> {
        let pieces = self.layout.pieces(slice, range).map(|(block, part)| async move {
            let block = self.fetch(block).await?;
            Ok(block.slice(part.start as usize..part.end as usize))
        });
        try_join_all(pieces).await
    }

    /// Starts to fetch a block that will be read soon, if there is room for it. Never waits.
    pub fn prefetch(self: &Arc<Self>, _block: BlockKey) {}

    /// Deletes every object of a slice; one that is not there is fine.
    pub async fn remove(&self, slice: SliceSize) -> Result<()> {
        for block in self.layout.blocks(slice) {
            self.bucket.delete(&self.layout.key(block)).await?;
        }
        Ok(())
    }

    async fn fetch(&self, block: BlockKey) -> Result<Bytes> {
        let key = self.layout.key(block);
        let body = match self.bucket.get(&key, None).await {
            Err(Error::NotFound) => {
                return Err(Error::MissingBlock { place: self.bucket.place().to_owned(), key });
            }
            other => other?,
        };
        self.compression.unpack(body, block.size as usize).map_err(|cause| Error::Storage {
            place: self.bucket.place().to_owned(),
            action: "read",
            key,
            cause,
        })
    }

    async fn put(&self, block: BlockKey, body: Bytes, tier: u8) -> Result<()> {
        let key = self.layout.key(block);
        let body = self.compression.pack(body).map_err(|cause| Error::Storage {
            place: self.bucket.place().to_owned(),
            action: "pack",
            key: key.clone(),
            cause,
        })?;
        let _turn = self.uploads.acquire().await;
        self.bucket.put(&key, body, tier).await
    }
}

impl Upload {
    pub fn id(&self) -> SliceId {
        self.id
    }

    /// Starts to upload the block of that number; its memory is given back once it is stored. All
    /// blocks but the last must be full.
    pub fn put(&mut self, index: u32, block: Bytes, reserved: Option<Reserved>) {
        let size = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let key = BlockKey { slice: self.id, index, size };
        let (store, tier) = (Arc::clone(&self.store), self.tier);
        self.blocks.push(key);
        self.running.spawn(async move {
            let outcome = store.put(key, block, tier).await;
            drop(reserved);
            outcome
        });
    }

    /// Waits until every block is stored. After an error the slice is to be aborted.
    pub async fn finish(&mut self) -> Result<()> {
        while let Some(done) = self.running.join_next().await {
            done.unwrap_or(Err(Error::Interrupted))?;
        }
        Ok(())
    }

    /// Gives the slice up and removes what was stored of it.
    pub async fn abort(mut self) -> Result<()> {
        self.running.shutdown().await;
        for block in &self.blocks {
            self.store.bucket.delete(&self.store.layout.key(*block)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::mem::MemStore;

    #[tokio::test]
    async fn a_slice_reads_back_and_is_removed() {
        let bucket = Arc::new(MemStore::default());
        let layout = Layout { block_size: 64 << 10, hash_prefix: false };
        let store = Store::new(bucket.clone(), layout, Compression::Lz4);
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i >> 4).to_le_bytes()[0]).collect();
        let mut upload = store.upload(SliceId(5), 0);
        for (index, block) in (0..).zip(bytes.chunks(64 << 10)) {
            upload.put(index, Bytes::copy_from_slice(block), None);
        }
        upload.finish().await.unwrap();
        let slice = SliceSize { id: SliceId(5), size: 100_000 };
        let read = store.read(slice, 10..99_999).await.unwrap().concat();
        assert!(read == bytes[10..99_999]);
        store.remove(slice).await.unwrap();
        assert_eq!(bucket.list("", "", 10).await.unwrap(), []);
        let error = store.read(slice, 0..1).await.unwrap_err();
        assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
    }
}
