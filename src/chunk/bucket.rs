//! Blocks as objects of the bucket: named, packed, and so many at a time.
//!
//! Keeps nothing and counts no memory: who asks for a block has room for it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{BlockKey, Compression, Layout, Options};
use crate::error::{Error, Result};
use crate::object::{ObjectStore, Wanted};

/// Blocks up to here are packed and unpacked where they are: that takes some hundred microseconds at
/// most. Larger ones would hold up everything else on the thread.
const SMALL: usize = 128 << 10;

pub struct Bucket {
    objects: Arc<dyn ObjectStore>,
    pub layout: Layout,
    compression: Compression,
    downloads: Semaphore,
    uploads: Arc<Semaphore>,
    /// Turns of packing and unpacking. A block is in memory twice meanwhile, which no budget knows:
    /// so many blocks is what it can be off by.
    packing: Semaphore,
}

/// A block as the object store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its storage class; empty where there are none.
    pub class: String,
    /// What is said of bringing it back from an archive.
    pub restore: String,
}

/// The right to upload one block now.
pub struct UploadTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Bucket {
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        layout: Layout,
        compression: Compression,
        options: &Options,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            objects,
            layout,
            compression,
            downloads: Semaphore::new(options.max_downloads.clamp(1, Semaphore::MAX_PERMITS)),
            uploads: Arc::new(Semaphore::new(options.max_uploads.clamp(1, Semaphore::MAX_PERMITS))),
            packing: Semaphore::new(cores),
        }
    }

    /// Whether a part of a block costs less than all of it.
    pub fn has_cheap_parts(&self) -> bool {
        self.compression == Compression::None && self.objects.has_cheap_ranges()
    }

    /// Whether a block that is fetched whole is compared with a checksum.
    pub fn checks_whole(&self) -> bool {
        self.objects.checks_whole()
    }

    /// A whole block.
    pub async fn fetch(&self, block: BlockKey) -> Result<Bytes> {
        let body = self.download(block, None).await?;
        let compression = self.compression;
        let unpack = move || compression.unpack(body, block.size as usize);
        self.compute(block.size as usize, unpack)
            .await
            .map_err(|cause| self.failed("read", block, cause))
    }

    /// A part of a block as it is in the bucket; only where parts are cheap.
    pub async fn fetch_part(&self, block: BlockKey, part: &Range<u32>) -> Result<Bytes> {
        let body = self.download(block, Some(part)).await?;
        if body.len() == part.len() {
            return Ok(body);
        }
        let cause = format!("{} bytes of {part:?}", body.len());
        Err(self.failed("read", block, cause))
    }

    /// Waits for a turn to upload; first come, first served.
    pub async fn upload_turn(&self) -> UploadTurn {
        // Never closed.
        UploadTurn { _permit: Arc::clone(&self.uploads).acquire_owned().await.ok() }
    }

    /// A turn if one is free now.
    pub fn try_upload_turn(&self) -> Option<UploadTurn> {
        let permit = Arc::clone(&self.uploads).try_acquire_owned().ok()?;
        Some(UploadTurn { _permit: Some(permit) })
    }

    /// Stores a block. Without compression the body goes to the object store as it is: the bytes are
    /// not copied from here on.
    pub async fn put(
        &self,
        _turn: &UploadTurn,
        block: BlockKey,
        body: Bytes,
        tier: u8,
    ) -> Result<()> {
        let compression = self.compression;
        let body = self
            .compute(body.len(), move || compression.pack(body))
            .await
            .map_err(|cause| self.failed("pack", block, cause))?;
        self.objects.put(&self.layout.key(block), body, tier).await
    }

    /// Deletes a block; one that is not there is fine.
    pub async fn delete(&self, block: BlockKey) -> Result<()> {
        match self.objects.delete(&self.layout.key(block)).await {
            Err(Error::NotFound) => Ok(()),
            other => other,
        }
    }

    pub async fn contains(&self, block: BlockKey) -> Result<bool> {
        match self.objects.head(&self.layout.key(block)).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What the object store says of a block.
    pub async fn look_at(&self, block: BlockKey) -> Result<Stored> {
        let object = self.objects.head(&self.layout.key(block)).await?;
        Ok(Stored { class: object.class, restore: object.restore })
    }

    async fn download(&self, block: BlockKey, part: Option<&Range<u32>>) -> Result<Bytes> {
        let key = self.layout.key(block);
        let most = self.compression.most(block.size);
        let wanted = match part {
            Some(part) => Wanted::part(u64::from(part.start)..u64::from(part.end), most),
            None => Wanted::whole(most),
        };
        // Never closed, so an error cannot be.
        let _turn = self.downloads.acquire().await;
        match self.objects.get(&key, wanted).await {
            Err(Error::NotFound) => {
                Err(Error::MissingBlock { place: self.objects.place().to_owned(), key })
            }
            other => other,
        }
    }

    /// Work on a block of so many bytes, off the threads that everything else runs on if it is big.
    async fn compute(
        &self,
        size: usize,
        work: impl FnOnce() -> Result<Bytes, String> + Send + 'static,
    ) -> Result<Bytes, String> {
        if self.compression == Compression::None || size <= SMALL {
            return work();
        }
        let _turn = self.packing.acquire().await;
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|cut| Err(cut.to_string()))
    }

    fn failed(&self, action: &'static str, block: BlockKey, cause: String) -> Error {
        let (place, key) = (self.objects.place().to_owned(), self.layout.key(block));
        Error::Storage { place, action, key, cause }
    }
}
