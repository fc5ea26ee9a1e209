//! Rewriting: parts of many slices become one slice, block by block.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

use super::{BlockKey, Budget, Reserved, Store, Upload};
use crate::error::Result;
use crate::slice::{SliceId, SliceSize};

/// Blocks that are read at the same time for one new block, if memory allows.
const SOURCES: usize = 16;

/// A part of a slice; of a hole only the length counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    pub slice: SliceSize,
    pub off: u32,
    pub len: u32,
}

/// What a new block takes from one old one: parts of it, and where they go.
#[derive(Debug, Default, PartialEq, Eq)]
struct Takings {
    parts: Vec<(u32, Range<u32>)>,
}

/// Bytes of a source in memory.
struct Share {
    source: BlockKey,
    start: u32,
    body: Bytes,
    reserved: Reserved,
}

/// A new block before it is made. What is not taken from anywhere is zeros.
#[derive(Debug, Default, PartialEq, Eq)]
struct Draft {
    size: u32,
    sources: BTreeMap<BlockKey, Takings>,
}

impl Store {
    /// Reads the fragments (laid end to end, holes as zeros) and writes them as slice `id`, never
    /// staged: nobody waits for it, and what it replaces is deleted once it counts. After an error
    /// nothing of it is left.
    ///
    /// At any moment it holds one new block and at most as many bytes of old ones, besides new
    /// blocks that are being uploaded. Both are reserved in one go, before either is touched.
    pub async fn rewrite(
        self: &Arc<Self>,
        fragments: &[Fragment],
        id: SliceId,
        tier: u8,
    ) -> Result<()> {
        if let Some(sizes) = &self.rewritten {
            sizes.observe(fragments.iter().map(|fragment| f64::from(fragment.len)).sum());
        }
        let mut upload = Upload::new(Arc::clone(self), id, tier, false);
        let outcome = self.rewrite_into(&mut upload, fragments).await;
        if outcome.is_err() {
            // What is left of it is left to who looks for objects without a slice.
            drop(upload.abort().await);
        }
        outcome
    }

    async fn rewrite_into(&self, upload: &mut Upload, fragments: &[Fragment]) -> Result<()> {
        for (index, draft) in (0..).zip(self.drafts(fragments)) {
            let size = draft.size as usize;
            let mut room = self.budget.reserve(2 * size).await;
            let block = self.compose(&draft).await?;
            // From here on only the new block is there. Less than its size was to be had only if
            // the whole budget is less.
            let own: Option<Reserved> = room.split(size.min(room.bytes()));
            drop(room);
            upload.put(index, block, own);
        }
        upload.finish().await
    }

    /// The new block, in memory that the caller has reserved.
    async fn compose(&self, draft: &Draft) -> Result<Bytes> {
        let mut block = BytesMut::zeroed(draft.size as usize);
        let shares = Budget::new(draft.size as usize);
        let whole = !self.bucket.has_cheap_parts();
        let spans = draft.sources.iter().map(|(source, takings)| {
            (*source, if whole { 0..source.size } else { takings.span() })
        });
        let spans: Vec<(BlockKey, Range<u32>)> = spans.collect();
        let sources = spans.into_iter().map(|(source, span)| self.share(&shares, source, span));
        let mut sources = stream::iter(sources).buffer_unordered(SOURCES);
        while let Some(share) = sources.next().await {
            let Share { source, start, body, reserved } = share?;
            for (at, part) in draft.sources.get(&source).into_iter().flat_map(|all| &all.parts) {
                let from = (part.start - start) as usize;
                let (at, len) = (*at as usize, part.len());
                block[at..at + len].copy_from_slice(&body[from..from + len]);
            }
            drop((body, reserved));
        }
        drop(sources);
        Ok(block.freeze())
    }

    /// Waits for room with nothing in hand, so all sources get their turn.
    async fn share(&self, shares: &Budget, source: BlockKey, span: Range<u32>) -> Result<Share> {
        let reserved = shares.reserve(span.len()).await;
        let body = self.source(source, &span).await?;
        Ok(Share { source, start: span.start, body, reserved })
    }

    /// Bytes of a block from wherever they are; nothing is kept for later, since the block goes.
    async fn source(&self, block: BlockKey, span: &Range<u32>) -> Result<Bytes> {
        if let Some(bytes) = self.hot.part(block, span) {
            return Ok(bytes);
        }
        if let Some(cache) = &self.cache
            && let Some(bytes) = cache.read(block, span.clone()).await
        {
            return Ok(bytes);
        }
        let is_staged = self.staging.as_ref().is_some_and(|staging| staging.contains(block));
        if self.bucket.has_cheap_parts()
            && !is_staged
            && span.len() < block.size as usize
            && let Ok(bytes) = self.bucket.fetch_part(block, span).await
        {
            return Ok(bytes);
        }
        let body = self.load(block).await?;
        Ok(body.slice(span.start as usize..span.end as usize))
    }

    /// The new blocks, and what goes into each.
    fn drafts(&self, fragments: &[Fragment]) -> Vec<Draft> {
        let mut drafts = vec![Draft::default()];
        for fragment in fragments {
            if fragment.slice.id.is_hole() {
                self.add(&mut drafts, fragment.len, None);
                continue;
            }
            let range = fragment.off..fragment.off + fragment.len;
            for (block, part) in self.layout().pieces(fragment.slice, range) {
                self.add(&mut drafts, part.end - part.start, Some((block, part.start)));
            }
        }
        drafts.retain(|draft| draft.size > 0);
        drafts
    }

    /// Lays `len` bytes behind what is there, from a place in a block or zeros.
    fn add(&self, drafts: &mut Vec<Draft>, mut len: u32, mut source: Option<(BlockKey, u32)>) {
        while len > 0 {
            if drafts.last().is_none_or(|last| last.size == self.layout().block_size) {
                drafts.push(Draft::default());
            }
            let Some(draft) = drafts.last_mut() else { return };
            let fits = len.min(self.layout().block_size - draft.size);
            if let Some((block, start)) = &mut source {
                let takings = draft.sources.entry(*block).or_default();
                takings.parts.push((draft.size, *start..*start + fits));
                *start += fits;
            }
            draft.size += fits;
            len -= fits;
        }
    }
}

impl Takings {
    /// From the first byte that is taken to the last.
    fn span(&self) -> Range<u32> {
        let start = self.parts.iter().map(|(_, part)| part.start).min().unwrap_or(0);
        let end = self.parts.iter().map(|(_, part)| part.end).max().unwrap_or(0);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::chunk::testing::{BLOCK, LAYOUT, Probe, body, content, slice, within};
    use crate::chunk::{Compression, Options, Parts};
    use crate::error::Error;
    use crate::object::ObjectStore;

    fn hole(len: u32) -> Fragment {
        Fragment { slice: SliceSize { id: SliceId::HOLE, size: 0 }, off: 77, len }
    }

    fn open(probe: &Arc<Probe>, compression: Compression, budget: usize) -> Arc<Store> {
        let (objects, budget, options) = (probe.clone(), Budget::new(budget), Options::default());
        Store::open(Parts { objects, layout: LAYOUT, compression, cache: None, budget, options })
    }

    #[tokio::test]
    async fn fragments_are_laid_end_to_end_with_zeros_in_holes() {
        let (one, two) = (slice(1, 3 * BLOCK), slice(2, 100));
        let probe = Probe::with(one).await;
        probe.fill(two).await;
        let store = open(&probe, Compression::None, 1 << 20);
        let fragments = [
            hole(10),
            Fragment { slice: one, off: 5, len: 2 * BLOCK },
            Fragment { slice: two, off: 90, len: 10 },
            hole(BLOCK),
            Fragment { slice: one, off: 0, len: 5 },
        ];
        store.rewrite(&fragments, SliceId(9), 0).await.unwrap();
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
    async fn many_fragments_of_a_block_cost_one_request() {
        let (one, two) = (slice(1, BLOCK), slice(2, BLOCK));
        let probe = Probe::with(one).await;
        probe.fill(two).await;
        let store = open(&probe, Compression::None, 1 << 20);
        let fragments: Vec<_> = (0..BLOCK / 64)
            .map(|n| Fragment { slice: if n % 2 == 0 { one } else { two }, off: n * 64, len: 64 })
            .collect();
        store.rewrite(&fragments, SliceId(9), 0).await.unwrap();
        let (gets, parts) = probe.count();
        assert_eq!(gets + parts, 2);
        let read = store.read(slice(9, BLOCK), 0..BLOCK).await.unwrap().concat();
        for n in 0..BLOCK as usize {
            let source = if (n / 64).is_multiple_of(2) { one } else { two };
            assert_eq!(read[n], body(LAYOUT.block(source, 0))[n]);
        }
    }

    #[tokio::test]
    async fn memory_stays_within_a_small_budget() {
        for compression in [Compression::None, Compression::Lz4] {
            let probe = Probe::new();
            let sources: Vec<_> = (1..=40).map(|id| slice(id, BLOCK)).collect();
            for source in &sources {
                let packed = compression.pack(content(*source).into()).unwrap();
                let key = LAYOUT.key(LAYOUT.block(*source, 0));
                probe.mem.put(&key, packed, 0).await.unwrap();
            }
            let store = open(&probe, compression, 3 * BLOCK as usize);
            let fragments: Vec<_> =
                sources.iter().map(|slice| Fragment { slice: *slice, off: 7, len: 3000 }).collect();
            within("rewriting", store.rewrite(&fragments, SliceId(99), 0)).await.unwrap();
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
        let probe = Probe::with(one).await;
        probe.mem.delete(&LAYOUT.key(LAYOUT.block(one, 2))).await.unwrap();
        let store = open(&probe, Compression::None, 1 << 20);
        let fragments = [Fragment { slice: one, off: 0, len: 3 * BLOCK }];
        let error = store.rewrite(&fragments, SliceId(9), 0).await.unwrap_err();
        assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
        assert_eq!(probe.mem.list("chunks/0/0/9_", "", 10).await.unwrap(), []);
        assert_eq!(store.budget().used(), 0);
        assert!(probe.puts.load(Ordering::SeqCst) >= 1);
    }
}
