//! The bucket as a store of blocks: object keys, compression, and limits on concurrent requests.
//!
//! Caches nothing and reserves no memory: the caller has reserved it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::download_queue::{DownloadPermit, DownloadQueue, Priority};
use super::{BlockKey, Compression, Layout, Options};
use crate::error::{Error, Result};
use crate::object::{GetRequest, ObjectStore};

/// Blocks up to this size are compressed and decompressed on the calling thread, which takes a few
/// hundred microseconds at most. Larger ones would delay everything else on the thread.
const SMALL: usize = 128 << 10;

pub struct Bucket {
    objects: Arc<dyn ObjectStore>,
    pub layout: Layout,
    compression: Compression,
    downloads: Arc<DownloadQueue>,
    uploads: Arc<Semaphore>,
    /// Limits concurrent compression and decompression. A block is in memory twice meanwhile, which
    /// no budget counts, so this many blocks is the most that a budget can be exceeded by.
    compressing: Semaphore,
}

/// What the object store reports about the object of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStatus {
    /// Storage class; empty if the store has none.
    pub class: String,
    /// State of a restore from an archive, as the store reports it.
    pub restore: String,
}

/// The right to upload one block now.
pub struct UploadPermit {
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
            downloads: DownloadQueue::new(options.max_downloads),
            uploads: Arc::new(Semaphore::new(options.max_uploads.clamp(1, Semaphore::MAX_PERMITS))),
            compressing: Semaphore::new(cores),
        }
    }

    /// Whether fetching a part of a block costs less than fetching all of it.
    pub fn has_cheap_parts(&self) -> bool {
        self.compression == Compression::None && self.objects.has_cheap_ranges()
    }

    /// Whether a block that is fetched whole is verified against a checksum.
    pub fn verifies_whole(&self) -> bool {
        self.objects.verifies_whole()
    }

    /// Waits for a permit to download.
    pub async fn download_permit(&self, priority: Priority) -> DownloadPermit {
        self.downloads.permit(priority).await
    }

    /// Fetches a whole block.
    pub async fn fetch(&self, permit: DownloadPermit, block: BlockKey) -> Result<Bytes> {
        let body = self.download(permit, block, None).await?;
        let compression = self.compression;
        let decompress = move || compression.decompress(body, block.size as usize);
        self.compute(block.size as usize, decompress)
            .await
            .map_err(|cause| self.failed("read", block, cause))
    }

    /// Fetches a part of a block. Only valid if parts are cheap.
    pub async fn fetch_part(
        &self,
        permit: DownloadPermit,
        block: BlockKey,
        part: &Range<u32>,
    ) -> Result<Bytes> {
        let body = self.download(permit, block, Some(part)).await?;
        if body.len() == part.len() {
            return Ok(body);
        }
        let cause = format!("the store returned {} bytes for range {part:?}", body.len());
        Err(self.failed("read", block, cause))
    }

    /// Waits for a permit to upload; first come, first served.
    pub async fn upload_permit(&self) -> UploadPermit {
        // The semaphore is never closed.
        UploadPermit { _permit: Arc::clone(&self.uploads).acquire_owned().await.ok() }
    }

    /// Returns a permit if one is free now.
    pub fn try_upload_permit(&self) -> Option<UploadPermit> {
        let permit = Arc::clone(&self.uploads).try_acquire_owned().ok()?;
        Some(UploadPermit { _permit: Some(permit) })
    }

    /// Stores a block. Without compression, the bytes are not copied from here on.
    pub async fn put(
        &self,
        _permit: &UploadPermit,
        block: BlockKey,
        body: Bytes,
        tier: u8,
    ) -> Result<()> {
        let compression = self.compression;
        let body = self
            .compute(body.len(), move || compression.compress(body))
            .await
            .map_err(|cause| self.failed("pack", block, cause))?;
        self.objects.put(&self.layout.key(block), body, tier).await
    }

    /// Deletes a block. A missing block is not an error.
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

    /// Returns what the object store reports about the object of a block.
    pub async fn object_status(&self, block: BlockKey) -> Result<ObjectStatus> {
        let object = self.objects.head(&self.layout.key(block)).await?;
        Ok(ObjectStatus { class: object.class, restore: object.restore })
    }

    async fn download(
        &self,
        _permit: DownloadPermit,
        block: BlockKey,
        part: Option<&Range<u32>>,
    ) -> Result<Bytes> {
        let key = self.layout.key(block);
        let most = self.compression.max_compressed_size(block.size);
        let wanted = match part {
            Some(part) => GetRequest::range_up_to(u64::from(part.start)..u64::from(part.end), most),
            None => GetRequest::whole_up_to(most),
        };
        match self.objects.get(&key, wanted).await {
            Err(Error::NotFound) => {
                Err(Error::MissingBlock { place: self.objects.place().to_owned(), key })
            }
            other => other,
        }
    }

    /// Runs CPU-bound work on a block of `size` bytes: on a blocking thread if the block is large.
    async fn compute(
        &self,
        size: usize,
        work: impl FnOnce() -> Result<Bytes, String> + Send + 'static,
    ) -> Result<Bytes, String> {
        if self.compression == Compression::None || size <= SMALL {
            return work();
        }
        let _permit = self.compressing.acquire().await;
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|cut| Err(cut.to_string()))
    }

    fn failed(&self, action: &'static str, block: BlockKey, cause: String) -> Error {
        let (place, key) = (self.objects.place().to_owned(), self.layout.key(block));
        Error::Storage { place, action, key, cause }
    }
}
