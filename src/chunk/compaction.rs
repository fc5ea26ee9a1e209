//! Compaction: ranges of many slices are rewritten as one new slice, block by block.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

use super::download_queue::Priority;
use super::{BlockKey, BlockRange, Budget, Reserved, SliceRange, Store, Upload};
use crate::error::Result;
use crate::slice::SliceId;

/// Old blocks read at the same time for one new block, if memory allows.
const CONCURRENT_SOURCES: usize = 16;

/// The ranges of one old block that go into a new block.
#[derive(Debug, Default, PartialEq, Eq)]
struct SourceRanges {
    copies: Vec<Copied>,
}

/// A range of an old block and its position in the new block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copied {
    at: u32,
    range: Range<u32>,
}

/// Bytes of an old block in memory, from offset `start` on.
struct LoadedSource {
    block: BlockKey,
    start: u32,
    body: Bytes,
    reserved: Reserved,
}

/// A new block before it is written. Bytes that come from no old block are zeros.
#[derive(Debug, Default, PartialEq, Eq)]
struct NewBlock {
    size: u32,
    sources: BTreeMap<BlockKey, SourceRanges>,
}

impl Store {
    /// Reads the ranges, in order and holes as zeros, and writes them as slice `id`. After an error
    /// nothing of the new slice is left.
    ///
    /// The new slice is never staged: no caller waits for it, and the old slices are deleted as soon
    /// as it is committed.
    ///
    /// At any moment, memory holds one new block and at most as many bytes of old blocks, besides
    /// new blocks that are being uploaded. Both are reserved in one step, before either is used.
    pub async fn compact(
        self: &Arc<Self>,
        ranges: &[SliceRange],
        id: SliceId,
        tier: u8,
    ) -> Result<()> {
        if let Some(sizes) = &self.compacted_sizes {
            sizes.observe(ranges.iter().map(|part| part.range.len() as f64).sum());
        }
        let mut upload = Upload::new(Arc::clone(self), id, tier, false);
        let outcome = self.compact_into(&mut upload, ranges).await;
        if outcome.is_err() {
            // Garbage collection removes objects that this leaves behind.
            drop(upload.abort().await);
        }
        outcome
    }

    async fn compact_into(&self, upload: &mut Upload, ranges: &[SliceRange]) -> Result<()> {
        for (index, block) in (0..).zip(self.plan_blocks(ranges)) {
            let size = block.size as usize;
            let mut reserved = self.budget.reserve(2 * size).await;
            let body = self.build_block(&block).await?;
            // From here on only the new block is in memory. The reservation is smaller than its
            // size only if the whole budget is.
            let own: Option<Reserved> = reserved.split(size.min(reserved.bytes()));
            drop(reserved);
            upload.put(index, body, own);
        }
        upload.finish().await
    }

    /// Returns the body of a new block, in memory that the caller has reserved.
    async fn build_block(&self, new: &NewBlock) -> Result<Bytes> {
        let mut body = BytesMut::zeroed(new.size as usize);
        let budget = Budget::new(new.size as usize);
        let whole = !self.bucket.has_cheap_parts();
        let sources: Vec<BlockRange> = new
            .sources
            .iter()
            .map(|(block, ranges)| {
                let range = if whole { 0..block.size } else { ranges.span() };
                BlockRange { block: *block, range }
            })
            .collect();
        let loads = sources.into_iter().map(|source| self.load_source(&budget, source));
        let mut loads = stream::iter(loads).buffer_unordered(CONCURRENT_SOURCES);
        while let Some(loaded) = loads.next().await {
            let LoadedSource { block, start, body: source, reserved } = loaded?;
            for Copied { at, range } in
                new.sources.get(&block).into_iter().flat_map(|all| &all.copies)
            {
                let from = (range.start - start) as usize;
                let (at, len) = (*at as usize, range.len());
                body[at..at + len].copy_from_slice(&source[from..from + len]);
            }
            drop((source, reserved));
        }
        drop(loads);
        Ok(body.freeze())
    }

    /// Waits for memory before it holds any, so that every source gets its turn.
    async fn load_source(&self, budget: &Budget, source: BlockRange) -> Result<LoadedSource> {
        let BlockRange { block, range } = source;
        let reserved = budget.reserve(range.len()).await;
        let body = self.read_source(block, &range).await?;
        Ok(LoadedSource { block, start: range.start, body, reserved })
    }

    /// Reads bytes of a block from wherever it is. Caches nothing, since the block will be deleted.
    async fn read_source(&self, block: BlockKey, range: &Range<u32>) -> Result<Bytes> {
        if let Some(bytes) = self.block_cache.read(block, range) {
            return Ok(bytes);
        }
        if let Some(cache) = &self.cache
            && let Some(bytes) = cache.read(block, range.clone()).await
        {
            return Ok(bytes);
        }
        let is_staged = self.staging.as_ref().is_some_and(|staging| staging.contains(block));
        if self.bucket.has_cheap_parts()
            && !is_staged
            && range.len() < block.size as usize
            && let permit = self.bucket.download_permit(Priority::Ahead).await
            && let Ok(bytes) = self.bucket.fetch_part(permit, block, range).await
        {
            return Ok(bytes);
        }
        let permit = self.bucket.download_permit(Priority::Ahead).await;
        let body = self.load(permit, block).await?;
        Ok(body.slice(range.start as usize..range.end as usize))
    }

    /// Returns the new blocks and what goes into each.
    fn plan_blocks(&self, ranges: &[SliceRange]) -> Vec<NewBlock> {
        let mut blocks = vec![NewBlock::default()];
        for SliceRange { slice, range } in ranges {
            if slice.id.is_hole() {
                self.append(&mut blocks, range.end - range.start, None);
                continue;
            }
            for BlockRange { block, range } in self.layout().block_ranges(*slice, range.clone()) {
                self.append(&mut blocks, range.end - range.start, Some((block, range.start)));
            }
        }
        blocks.retain(|block| block.size > 0);
        blocks
    }

    /// Appends `len` bytes: from an offset in an old block, or zeros.
    fn append(
        &self,
        blocks: &mut Vec<NewBlock>,
        mut len: u32,
        mut source: Option<(BlockKey, u32)>,
    ) {
        while len > 0 {
            if blocks.last().is_none_or(|last| last.size == self.layout().block_size) {
                blocks.push(NewBlock::default());
            }
            let Some(new) = blocks.last_mut() else { return };
            let fits = len.min(self.layout().block_size - new.size);
            if let Some((block, start)) = &mut source {
                let ranges = new.sources.entry(*block).or_default();
                ranges.copies.push(Copied { at: new.size, range: *start..*start + fits });
                *start += fits;
            }
            new.size += fits;
            len -= fits;
        }
    }
}

impl SourceRanges {
    /// Returns the range from the first byte that is copied to the last.
    fn span(&self) -> Range<u32> {
        let start = self.copies.iter().map(|copied| copied.range.start).min().unwrap_or(0);
        let end = self.copies.iter().map(|copied| copied.range.end).max().unwrap_or(0);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::chunk::testing::{BLOCK, LAYOUT, TestBucket, content, slice, within};
    use crate::chunk::{Compression, Options, StoreConfig};
    use crate::error::Error;
    use crate::object::ObjectStore;
    use crate::slice::SliceSize;

    fn hole(len: u32) -> SliceRange {
        SliceRange { slice: SliceSize { id: SliceId::HOLE, size: 0 }, range: 77..77 + len }
    }

    fn open(bucket: &Arc<TestBucket>, compression: Compression, budget: usize) -> Arc<Store> {
        let (objects, budget, options) = (bucket.clone(), Budget::new(budget), Options::default());
        Store::open(StoreConfig {
            objects,
            layout: LAYOUT,
            compression,
            cache: None,
            budget,
            options,
        })
    }

    #[tokio::test]
    async fn ranges_follow_each_other_with_zeros_in_holes() {
        let (one, two) = (slice(1, 3 * BLOCK), slice(2, 100));
        let bucket = TestBucket::with(one).await;
        bucket.fill(two).await;
        let store = open(&bucket, Compression::None, 1 << 20);
        let ranges = [
            hole(10),
            SliceRange { slice: one, range: 5..5 + 2 * BLOCK },
            SliceRange { slice: two, range: 90..100 },
            hole(BLOCK),
            SliceRange { slice: one, range: 0..5 },
        ];
        store.compact(&ranges, SliceId(9), 0).await.unwrap();
        let new = slice(9, 10 + 2 * BLOCK + 10 + BLOCK + 5);
        let (first, second) = (content(one), content(two));
        let expected = [
            &[0; 10],
            &first[5..5 + 2 * BLOCK as usize],
            &second[90..],
            &vec![0; BLOCK as usize],
            &first[..5],
        ]
        .concat();
        assert!(store.read(new, 0..new.size).await.unwrap().concat() == expected);
    }

    #[tokio::test]
    async fn many_ranges_of_a_block_take_one_request() {
        let (one, two) = (slice(1, BLOCK), slice(2, BLOCK));
        let bucket = TestBucket::with(one).await;
        bucket.fill(two).await;
        let store = open(&bucket, Compression::None, 1 << 20);
        let ranges: Vec<_> = (0..BLOCK / 64)
            .map(|n| SliceRange {
                slice: if n % 2 == 0 { one } else { two },
                range: n * 64..n * 64 + 64,
            })
            .collect();
        store.compact(&ranges, SliceId(9), 0).await.unwrap();
        let (gets, parts) = bucket.count();
        assert_eq!(gets + parts, 2);
        let read = store.read(slice(9, BLOCK), 0..BLOCK).await.unwrap().concat();
        let (first, second) = (content(one), content(two));
        for (n, byte) in read.iter().enumerate() {
            let source = if (n / 64).is_multiple_of(2) { &first } else { &second };
            assert_eq!(*byte, source[n]);
        }
    }

    #[tokio::test]
    async fn memory_stays_within_a_small_budget() {
        for compression in [Compression::None, Compression::Lz4] {
            let bucket = TestBucket::new();
            let sources: Vec<_> = (1..=40).map(|id| slice(id, BLOCK)).collect();
            for source in &sources {
                let packed = compression.compress(content(*source).into()).unwrap();
                let key = LAYOUT.key(LAYOUT.block(*source, 0));
                bucket.mem.put(&key, packed, 0).await.unwrap();
            }
            let store = open(&bucket, compression, 3 * BLOCK as usize);
            let ranges: Vec<_> =
                sources.iter().map(|slice| SliceRange { slice: *slice, range: 7..3007 }).collect();
            within("compacting", store.compact(&ranges, SliceId(99), 0)).await.unwrap();
            let new = slice(99, 40 * 3000);
            let expected: Vec<u8> =
                sources.iter().flat_map(|one| content(*one)[7..3007].to_vec()).collect();
            assert!(store.read(new, 0..new.size).await.unwrap().concat() == expected);
            assert!(store.budget().peak() <= 3 * BLOCK as usize);
        }
    }

    #[tokio::test]
    async fn after_an_error_nothing_is_left() {
        let one = slice(1, 3 * BLOCK);
        let bucket = TestBucket::with(one).await;
        bucket.mem.delete(&LAYOUT.key(LAYOUT.block(one, 2))).await.unwrap();
        let store = open(&bucket, Compression::None, 1 << 20);
        let ranges = [SliceRange { slice: one, range: 0..3 * BLOCK }];
        let error = store.compact(&ranges, SliceId(9), 0).await.unwrap_err();
        assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
        assert_eq!(bucket.mem.list("chunks/0/0/9_", "", 10).await.unwrap(), []);
        assert_eq!(store.budget().used(), 0);
        assert!(bucket.puts.load(Ordering::SeqCst) >= 1);
    }
}
