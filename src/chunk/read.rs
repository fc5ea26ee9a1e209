//! Reads: from memory, then from the cache, then from the bucket.

pub mod block_cache;
pub mod prefetch;
pub mod sequential;
pub mod single_flight;
pub mod stream;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;

use super::download_queue::{DownloadPermit, Priority};
use super::{BlockKey, BlockRange, Budget, Reserved, SliceRange, Store};
use crate::error::{Error, Result};
use crate::slice::SliceSize;
use crate::sync::Mutex;
use block_cache::{UnreadRoom, with_reservation};
use single_flight::{Fetch, Join};
use stream::StreamState;

/// Where a read gets its memory from.
enum ReadMemory<'a> {
    /// Reserved from the budget when needed; the budget may refuse.
    OnDemand(&'a Budget),
    /// Reserved beforehand, enough for the worst case.
    Reserved(Mutex<Reserved>),
}

/// Why a block is fetched.
enum Purpose {
    /// A reader waits for it.
    Read,
    /// A reader is expected to want it soon: this stream, if there is one.
    Prefetch(Option<Arc<StreamState>>, UnreadRoom),
}

/// Why a range was not read.
enum ReadError {
    NoMemory,
    Failed(Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl ReadMemory<'_> {
    fn take(&self, bytes: usize) -> Result<Reserved, ReadError> {
        match self {
            Self::OnDemand(budget) => budget.try_reserve(bytes).ok_or(ReadError::NoMemory),
            Self::Reserved(all) => {
                let mut all = all.lock();
                // A block larger than the whole budget gets the whole budget.
                let bytes = bytes.min(all.bytes());
                all.split(bytes).ok_or(ReadError::NoMemory)
            }
        }
    }

    /// Takes back memory that was not needed after all.
    fn give(&self, reserved: Reserved) {
        match self {
            Self::OnDemand(_) => drop(reserved),
            Self::Reserved(all) => {
                all.lock().merge(reserved);
            }
        }
    }
}

impl Store {
    /// Reads bytes `range` of a slice. The returned buffers follow each other.
    ///
    /// They are parts of blocks in memory and keep those blocks there. The caller must not wait for
    /// memory of the same budget while it holds them: to read several slices at once, call
    /// [`Store::read_all`] once.
    pub async fn read(&self, slice: SliceSize, range: Range<u32>) -> Result<Vec<Bytes>> {
        self.read_all(&[SliceRange { slice, range }]).await
    }

    /// Reads ranges of several slices. The returned buffers follow each other.
    ///
    /// Never waits for memory while holding some, so readers cannot deadlock. At first, memory is
    /// only taken if it is available at once. If it is not, everything taken is released, and enough
    /// for the worst case, all blocks whole, is reserved in one step. Nothing after that needs more:
    /// a fetch has its memory before it starts, and neither a fetch nor the cache waits for a
    /// reader.
    pub async fn read_all(&self, wanted: &[SliceRange]) -> Result<Vec<Bytes>> {
        let ranges = self.block_ranges(wanted);
        match self.read_ranges(&ranges, &ReadMemory::OnDemand(&self.budget)).await {
            Ok(bytes) => return Ok(bytes),
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::NoMemory) => {}
        }
        let worst_case = ranges.iter().map(worst_case).sum();
        if worst_case > self.budget.capacity() {
            return self.read_one_by_one(&ranges).await;
        }
        self.read_ranges_within(worst_case, &ranges).await
    }

    /// Reads bytes of a slice that are in memory, or in files that the page cache holds. Never
    /// waits. `None` only means that [`Store::read`] is needed.
    pub fn read_now(&self, slice: SliceSize, range: Range<u32>) -> Option<Vec<Bytes>> {
        let ranges = self.layout().block_ranges(slice, range);
        ranges
            .map(|BlockRange { block, range }| {
                let in_memory = self.block_cache.read(block, &range);
                in_memory.or_else(|| self.read_cached_now(block, range))
            })
            .collect()
    }

    fn read_cached_now(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        let cache = self.cache.as_ref()?;
        let reserved = self.budget.try_reserve(range.len())?;
        Some(with_reservation(cache.read_now(block, range)?, reserved))
    }

    fn block_ranges(&self, wanted: &[SliceRange]) -> Vec<BlockRange> {
        let layout = self.layout();
        let ranges = wanted.iter().map(|SliceRange { slice, range }| (*slice, range.clone()));
        ranges.flat_map(|(slice, range)| layout.block_ranges(slice, range)).collect()
    }

    async fn read_ranges(
        &self,
        ranges: &[BlockRange],
        memory: &ReadMemory<'_>,
    ) -> Result<Vec<Bytes>, ReadError> {
        if let [range] = ranges {
            return Ok(vec![self.read_range(range, memory).await?]);
        }
        try_join_all(ranges.iter().map(|range| self.read_range(range, memory))).await
    }

    /// Waits for `bytes` of memory, then reads.
    async fn read_ranges_within(&self, bytes: usize, ranges: &[BlockRange]) -> Result<Vec<Bytes>> {
        let memory = ReadMemory::Reserved(Mutex::new(self.budget.reserve(bytes).await));
        self.read_ranges(ranges, &memory).await.map_err(|error| match error {
            ReadError::Failed(error) => error,
            ReadError::NoMemory => Error::internal("reading", "the reserved memory is too small"),
        })
    }

    /// Reads ranges of more blocks than fit into the budget, one after the other, and copies the
    /// wanted bytes of each. The copies exceed the budget while the next block waits for memory, so
    /// only one such read runs at a time.
    async fn read_one_by_one(&self, ranges: &[BlockRange]) -> Result<Vec<Bytes>> {
        // The semaphore is never closed, so this cannot fail.
        let _permit = self.oversized_read.acquire().await;
        let mut copies = Vec::with_capacity(ranges.len());
        for range in ranges {
            let needed = worst_case(range);
            let bytes = self.read_ranges_within(needed, std::slice::from_ref(range)).await?;
            copies.extend(bytes.iter().map(|bytes| Bytes::copy_from_slice(bytes)));
        }
        Ok(copies)
    }

    async fn read_range(
        &self,
        wanted: &BlockRange,
        memory: &ReadMemory<'_>,
    ) -> Result<Bytes, ReadError> {
        let BlockRange { block, range } = wanted;
        if let Some(bytes) = self.block_cache.read(*block, range) {
            return Ok(bytes);
        }
        if let Some(cache) = &self.cache {
            let reserved = memory.take(range.len())?;
            let bytes = match cache.read_now(*block, range.clone()) {
                Some(bytes) => Some(bytes),
                None => cache.read(*block, range.clone()).await,
            };
            match bytes {
                Some(bytes) => return Ok(with_reservation(bytes, reserved)),
                None => memory.give(reserved),
            }
        }
        if self.prefers_part(wanted) {
            match self.fetch_part(wanted, memory).await {
                // A request for the whole block may succeed where one for a part fails, and a block
                // that is not in the bucket may be staged.
                Err(ReadError::Failed(
                    Error::Storage { .. } | Error::Denied { .. } | Error::MissingBlock { .. },
                )) => {}
                other => return other,
            }
        }
        self.fetch_whole(wanted, memory).await
    }

    /// Whether to fetch only the wanted part of a block.
    ///
    /// A stream begins a block at its start, or continues where it was, and needs all of it; a
    /// reader that begins in the middle may not. With a cache, only a part much smaller than the
    /// block is worth a request of its own. A part cannot be verified against a checksum.
    fn prefers_part(&self, wanted: &BlockRange) -> bool {
        let BlockRange { block, range } = wanted;
        let is_small = self.cache.is_none() || range.end - range.start <= block.size / 4;
        let is_verified = self.bucket.verifies_whole() && self.options.verify.includes(block.size);
        self.bucket.has_cheap_parts()
            && !is_verified
            && range.start > 0
            && is_small
            && !self.sequential_reads.continues(*block, range)
            && !self.single_flight.contains(*block)
            && !self.staging.as_ref().is_some_and(|staging| staging.contains(*block))
    }

    async fn fetch_part(
        &self,
        BlockRange { block, range }: &BlockRange,
        memory: &ReadMemory<'_>,
    ) -> Result<Bytes, ReadError> {
        let reserved = memory.take(range.len())?;
        let permit = self.bucket.download_permit(Priority::Demanded).await;
        match self.bucket.fetch_part(permit, *block, range).await {
            Ok(body) => {
                // Without a cache the whole block would only be useful to a stream, which prefetches
                // it itself.
                if self.cache.is_some() {
                    self.prefetch_whole_block(*block);
                }
                Ok(with_reservation(body, reserved))
            }
            Err(error) => {
                memory.give(reserved);
                Err(error.into())
            }
        }
    }

    /// Reads the range from a fetch of the whole block.
    async fn fetch_whole(
        &self,
        BlockRange { block, range }: &BlockRange,
        memory: &ReadMemory<'_>,
    ) -> Result<Bytes, ReadError> {
        let waiter = if let Some(waiter) = self.single_flight.want(*block) {
            waiter
        } else {
            let reserved = memory.take(block.size as usize)?;
            let ready = || self.block_cache.read(*block, range);
            match self.single_flight.want_or_start(*block, ready) {
                Join::Ready(bytes) => return Ok(bytes),
                Join::Waiting(waiter) => waiter,
                Join::Started(waiter, fetch) => {
                    self.start_fetch(fetch, reserved, Purpose::Read);
                    waiter
                }
            }
        };
        let body = waiter.wait().await?;
        // Through the block cache first, so that the block counts as read.
        let bytes = self.block_cache.read(*block, range);
        Ok(bytes.unwrap_or_else(|| body.slice(range.start as usize..range.end as usize)))
    }

    /// Fetches a block in a task of its own.
    fn start_fetch(&self, mut fetch: Fetch, reserved: Reserved, purpose: Purpose) {
        // The caller holds the store, so this succeeds.
        let Some(store) = self.me.upgrade() else { return };
        self.runtime.spawn(async move {
            let Some(permit) = store.fetch_permit(&mut fetch, &purpose).await else { return };
            let block = fetch.block();
            let outcome = store.load(permit, block).await.map(|body| {
                let is_partial = block.size < store.layout().block_size;
                if is_partial || !store.options.cache_partial_only {
                    // Without the reservation: the cache accounts for its own memory.
                    store.cache_block(block, &body);
                }
                let body = with_reservation(body, reserved);
                match purpose {
                    Purpose::Read => store.block_cache.insert(block, body.clone()),
                    Purpose::Prefetch(stream, room) => {
                        drop(room);
                        store.block_cache.insert_unread(block, body.clone(), stream);
                    }
                }
                body
            });
            fetch.finish(outcome);
        });
    }

    /// Waits for the permit of a fetch. A prefetch that a reader begins to wait for meanwhile becomes
    /// as urgent as any other; one whose stream ends is given up.
    async fn fetch_permit(&self, fetch: &mut Fetch, purpose: &Purpose) -> Option<DownloadPermit> {
        if let Purpose::Prefetch(stream, _) = purpose {
            let ended = async {
                match stream {
                    Some(stream) => stream.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = fetch.wanted() => {}
                permit = self.bucket.download_permit(Priority::Ahead) => return Some(permit),
                () = ended => {
                    if fetch.give_up() {
                        return None;
                    }
                }
            }
        }
        Some(self.bucket.download_permit(Priority::Demanded).await)
    }

    /// Loads a whole block from the bucket, or from where it is staged. Reserves no memory.
    pub(super) async fn load(&self, permit: DownloadPermit, block: BlockKey) -> Result<Bytes> {
        if self.staging.as_ref().is_some_and(|staging| staging.contains(block))
            && let Some(body) = self.load_staged(block).await
        {
            return Ok(body);
        }
        match self.bucket.fetch(permit, block).await {
            // An earlier run, or another process, may have left it staged.
            Err(error @ Error::MissingBlock { .. }) => self.load_staged(block).await.ok_or(error),
            other => other,
        }
    }

    async fn load_staged(&self, block: BlockKey) -> Option<Bytes> {
        let (body, _) = self.cache.as_ref()?.read_staged(block).await.ok()?;
        Some(body)
    }
}

/// Returns the memory that a read of this range takes in the worst case: the whole block.
fn worst_case(range: &BlockRange) -> usize {
    Budget::rounded(range.block.size as usize)
}

#[cfg(test)]
mod tests;
