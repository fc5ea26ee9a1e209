//! Blocks: how a slice is cut into them, and the object key of each.

use std::ops::Range;

use crate::slice::{SliceId, SliceSize};

/// One block of a slice. `size` is its length before compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    pub slice: SliceId,
    pub index: u32,
    pub size: u32,
}

/// Some bytes of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRange {
    pub block: BlockKey,
    pub range: Range<u32>,
}

/// Some bytes of one slice. If the slice is a hole, only the length of the range matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceRange {
    pub slice: SliceSize,
    pub range: Range<u32>,
}

impl SliceRange {
    pub fn hole(len: u32) -> Self {
        Self { slice: SliceSize { id: SliceId::HOLE, size: 0 }, range: 0..len }
    }

    pub fn is_hole(&self) -> bool {
        self.slice.id.is_hole()
    }

    /// Bytes of the range.
    pub fn byte_count(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Returns the blocks that contain the range, and which bytes of each.
    pub fn block_ranges(&self, layout: Layout) -> impl Iterator<Item = BlockRange> + use<> {
        let range = if self.is_hole() { 0..0 } else { self.range.clone() };
        layout.block_ranges(self.slice, range)
    }
}

/// How the slices of a volume map to objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a full block.
    pub block_size: u32,
    /// Whether keys begin with a hash of the slice id.
    pub hash_prefix: bool,
}

impl Layout {
    /// Returns every block of a slice, in order.
    pub fn blocks(&self, slice: SliceSize) -> impl ExactSizeIterator<Item = BlockKey> + use<> {
        let layout = *self;
        (0..slice.size.div_ceil(self.block_size)).map(move |index| layout.block(slice, index))
    }

    /// Returns block number `index` of a slice.
    pub fn block(&self, slice: SliceSize, index: u32) -> BlockKey {
        let start = index * self.block_size;
        let size = self.block_size.min(slice.size.saturating_sub(start));
        BlockKey { slice: slice.id, index, size }
    }

    /// Returns the blocks that hold bytes `range` of a slice, and which bytes of each.
    pub fn block_ranges(
        &self,
        slice: SliceSize,
        range: Range<u32>,
    ) -> impl Iterator<Item = BlockRange> + use<> {
        let layout = *self;
        let end = range.end.min(slice.size);
        let first = range.start / self.block_size;
        let last = if range.start < end { end.div_ceil(self.block_size) } else { first };
        (first..last).map(move |index| {
            let start = index * layout.block_size;
            let block = layout.block(slice, index);
            let range = range.start.saturating_sub(start)..(end - start).min(block.size);
            BlockRange { block, range }
        })
    }

    /// Returns the object key of a block.
    pub fn key(&self, block: BlockKey) -> String {
        let (id, index, size) = (block.slice.0, block.index, block.size);
        if self.hash_prefix {
            return format!("chunks/{:02X}/{}/{id}_{index}_{size}", id % 256, id / 1_000_000);
        }
        format!("chunks/{}/{}/{id}_{index}_{size}", id / 1_000_000, id / 1000)
    }

    /// Returns the block stored under an object key, or `None` if the key is not one that this
    /// layout gives to a block.
    pub fn parse(&self, key: &str) -> Option<BlockKey> {
        let mut parts = key.rsplit('/').next()?.split('_');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (id, index, size) = (number()?, number()?, number()?);
        let block = BlockKey {
            slice: SliceId(id),
            index: u32::try_from(index).ok()?,
            size: u32::try_from(size).ok()?,
        };
        (self.key(block) == key).then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Layout = Layout { block_size: 256 << 10, hash_prefix: false };
    const HASHED: Layout = Layout { hash_prefix: true, ..PLAIN };

    fn slice(id: u64, size: u32) -> SliceSize {
        SliceSize { id: SliceId(id), size }
    }

    #[test]
    fn keys_match_the_go_client() {
        let keys = |layout: Layout, slice| -> Vec<String> {
            layout.blocks(slice).map(|block| layout.key(block)).collect()
        };
        assert_eq!(
            keys(HASHED, slice(1, 300_000)),
            ["chunks/01/0/1_0_262144", "chunks/01/0/1_1_37856"]
        );
        let big = Layout { block_size: 4 << 20, ..PLAIN };
        assert_eq!(keys(big, slice(3, 2 << 20)), ["chunks/0/0/3_0_2097152"]);
        assert_eq!(keys(big, slice(12_345_678, 5)), ["chunks/12/12345/12345678_0_5"]);
        assert_eq!(keys(HASHED, slice(12_345_678, 5)), ["chunks/4E/12/12345678_0_5"]);
    }

    #[test]
    fn keys_parse_back_and_other_keys_do_not_parse() {
        for layout in [PLAIN, HASHED] {
            for block in layout.blocks(slice(7_654_321, 600_000)) {
                assert_eq!(layout.parse(&layout.key(block)), Some(block));
            }
        }
        for key in ["chunks/0/0/1_0", "chunks/0/1/1_0_5", "chunks/0/0/01_0_5", "x", "", "1_0_5"] {
            assert_eq!(PLAIN.parse(key), None, "{key}");
        }
    }

    #[test]
    fn a_range_of_a_slice_maps_to_ranges_of_its_blocks() {
        let block = PLAIN.block_size;
        let ranges: Vec<_> = PLAIN
            .block_ranges(slice(1, 2 * block + 10), block - 5..2 * block + 99)
            .map(|found| (found.block.index, found.block.size, found.range))
            .collect();
        assert_eq!(ranges, [(0, block, block - 5..block), (1, block, 0..block), (2, 10, 0..10)]);
        assert_eq!(PLAIN.block_ranges(slice(1, 10), 10..20).count(), 0);
    }
}
