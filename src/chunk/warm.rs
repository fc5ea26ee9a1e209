//! Warming: what a slice has in the cache, brought there or taken from there by request.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{BlockKey, Store, Stored, VolumeCache};
use crate::error::{Error, Result};
use crate::slice::SliceSize;

/// How long a cache that cannot follow is waited for, in all and between two looks.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Blocks of a range of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warmth {
    pub cached_blocks: u64,
    pub cached_bytes: u64,
    pub missing_blocks: u64,
    pub missing_bytes: u64,
}

impl Store {
    /// Brings the blocks that hold a range of a slice into the cache, one after the other.
    /// [`Error::NoSpace`] if the cache does not take one.
    pub async fn warm(&self, slice: SliceSize, range: Range<u32>) -> Result<()> {
        let Some(cache) = &self.cache else { return Err(Error::NotSupported) };
        for (block, _) in self.layout().pieces(slice, range) {
            if cache.contains(block) {
                continue;
            }
            // Not tied to the body: the cache counts what it holds itself.
            let _reserved = self.budget.reserve(block.size as usize).await;
            let body = match self.hot.part(block, &(0..block.size)) {
                Some(body) => Bytes::copy_from_slice(&body),
                None => self.load(block).await?,
            };
            put_surely(cache, block, body).await?;
        }
        Ok(())
    }

    /// Takes the blocks that hold a range of a slice out of the cache and out of memory. What is
    /// staged stays.
    pub fn evict(&self, slice: SliceSize, range: Range<u32>) {
        for (block, _) in self.layout().pieces(slice, range) {
            self.hot.forget(block);
            let is_staged = self.staging.as_ref().is_some_and(|staging| staging.contains(block));
            if let Some(cache) = self.cache.as_ref().filter(|_| !is_staged) {
                cache.remove(block);
            }
        }
    }

    /// How much of the blocks that hold a range of a slice is cached.
    pub fn warmth(&self, slice: SliceSize, range: Range<u32>) -> Warmth {
        let mut warmth = Warmth::default();
        for (block, _) in self.layout().pieces(slice, range) {
            let is_cached = self.cache.as_ref().is_some_and(|cache| cache.contains(block));
            let (blocks, bytes) = if is_cached {
                (&mut warmth.cached_blocks, &mut warmth.cached_bytes)
            } else {
                (&mut warmth.missing_blocks, &mut warmth.missing_bytes)
            };
            *blocks += 1;
            *bytes += u64::from(block.size);
        }
        warmth
    }
}

impl Store {
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// The blocks that hold a range of a slice, and where in the cache each is.
    pub fn locate(
        &self,
        slice: SliceSize,
        range: Range<u32>,
    ) -> impl Iterator<Item = (BlockKey, Option<String>)> {
        let place = |block| self.cache.as_ref().and_then(|cache| cache.place_of(block));
        self.layout().pieces(slice, range).map(move |(block, _)| (block, place(block)))
    }

    /// What the object store says of a block; [`Error::NotFound`] if it is not there.
    pub async fn look_at(&self, block: BlockKey) -> Result<Stored> {
        self.bucket.look_at(block).await
    }
}

/// Puts a block into the cache, which drops what it cannot take at once: again, until it is
/// there.
async fn put_surely(cache: &VolumeCache, block: BlockKey, body: Bytes) -> Result<()> {
    let started = Instant::now();
    loop {
        cache.put(block, body.clone());
        if cache.contains(block) {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::NoSpace);
        }
        sleep(PAUSE).await;
    }
}
