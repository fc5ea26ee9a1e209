//! Warmup: blocks of a slice are cached, evicted or located by request.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::download_queue::Priority;
use super::{BlockKey, BlockRange, ObjectStatus, Store, VolumeCache};
use crate::error::{Error, Result};
use crate::slice::SliceSize;

/// How long to wait, in all and between two attempts, for a cache that is too busy to take a block.
const CACHE_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// How much of a range of a slice is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCoverage {
    pub cached_blocks: u64,
    pub cached_bytes: u64,
    pub missing_blocks: u64,
    pub missing_bytes: u64,
}

impl Store {
    /// Caches the blocks that hold a range of a slice, one after the other. Returns
    /// [`Error::Exhausted`] if the cache does not take one.
    pub async fn warm_up(&self, slice: SliceSize, range: Range<u32>) -> Result<()> {
        let Some(cache) = &self.cache else { return Err(Error::NotSupported) };
        for BlockRange { block, .. } in self.layout().block_ranges(slice, range) {
            if cache.contains(block) {
                continue;
            }
            // Not tied to the body: the cache accounts for its own memory.
            let _reserved = self.budget.reserve(block.size as usize).await;
            let body = match self.block_cache.read(block, &(0..block.size)) {
                Some(body) => Bytes::copy_from_slice(&body),
                None => {
                    self.load(self.bucket.download_permit(Priority::Ahead).await, block).await?
                }
            };
            put_with_retry(cache, block, body).await?;
        }
        Ok(())
    }

    /// Evicts the blocks that hold a range of a slice from the cache and from memory. Staged blocks
    /// stay.
    pub fn evict(&self, slice: SliceSize, range: Range<u32>) {
        for BlockRange { block, .. } in self.layout().block_ranges(slice, range) {
            self.block_cache.remove(block);
            let is_staged = self.staging.as_ref().is_some_and(|staging| staging.contains(block));
            if let Some(cache) = self.cache.as_ref().filter(|_| !is_staged) {
                cache.remove(block);
            }
        }
    }

    /// Returns how much of the blocks that hold a range of a slice is cached.
    pub fn coverage(&self, slice: SliceSize, range: Range<u32>) -> CacheCoverage {
        let mut coverage = CacheCoverage::default();
        for BlockRange { block, .. } in self.layout().block_ranges(slice, range) {
            let is_cached = self.cache.as_ref().is_some_and(|cache| cache.contains(block));
            let (blocks, bytes) = if is_cached {
                (&mut coverage.cached_blocks, &mut coverage.cached_bytes)
            } else {
                (&mut coverage.missing_blocks, &mut coverage.missing_bytes)
            };
            *blocks += 1;
            *bytes += u64::from(block.size);
        }
        coverage
    }
}

impl Store {
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Returns the blocks that hold a range of a slice, and where in the cache each one is.
    pub fn locate(
        &self,
        slice: SliceSize,
        range: Range<u32>,
    ) -> impl Iterator<Item = (BlockKey, Option<String>)> {
        let location = |block| self.cache.as_ref().and_then(|cache| cache.location_of(block));
        self.layout()
            .block_ranges(slice, range)
            .map(move |found| (found.block, location(found.block)))
    }

    /// Returns what the object store reports about a block; [`Error::NotFound`] if it is missing.
    pub async fn object_status(&self, block: BlockKey) -> Result<ObjectStatus> {
        self.bucket.object_status(block).await
    }
}

/// Puts a block into the cache. The cache drops blocks that it cannot take at once, so this
/// retries.
async fn put_with_retry(cache: &VolumeCache, block: BlockKey, body: Bytes) -> Result<()> {
    let started = Instant::now();
    loop {
        cache.put(block, body.clone());
        if cache.contains(block) {
            return Ok(());
        }
        if started.elapsed() > CACHE_TIMEOUT {
            let cause =
                "the cache takes no more blocks: --cache-size or --free-space-ratio is reached";
            return Err(Error::Exhausted(cause.to_owned()));
        }
        sleep(RETRY_DELAY).await;
    }
}
