//! Blocks: how a slice is cut, and what each piece is called in the bucket.

use std::ops::Range;

use crate::slice::{SliceId, SliceSize};

/// One block of a slice; `size` is its length before it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    pub slice: SliceId,
    pub index: u32,
    pub size: u32,
}

/// How slices of a volume become objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a full block.
    pub block_size: u32,
    /// Keys begin with a hash of the id.
    pub hash_prefix: bool,
}

impl Layout {
    /// Every block of a slice, in order.
    pub fn blocks(&self, slice: SliceSize) -> impl ExactSizeIterator<Item = BlockKey> + use<> {
        let layout = *self;
        (0..slice.size.div_ceil(self.block_size)).map(move |index| layout.block(slice, index))
    }

    /// The block of that number.
    pub fn block(&self, slice: SliceSize, index: u32) -> BlockKey {
        let start = index * self.block_size;
        let size = self.block_size.min(slice.size.saturating_sub(start));
        BlockKey { slice: slice.id, index, size }
    }

    /// The blocks that hold bytes `range` of a slice, and which bytes of each.
    pub fn pieces(
        &self,
        slice: SliceSize,
        range: Range<u32>,
    ) -> impl Iterator<Item = (BlockKey, Range<u32>)> + use<> {
        let layout = *self;
        let end = range.end.min(slice.size);
        let first = range.start / self.block_size;
        let last = if range.start < end { end.div_ceil(self.block_size) } else { first };
        (first..last).map(move |index| {
            let start = index * layout.block_size;
            let block = layout.block(slice, index);
            (block, range.start.saturating_sub(start)..(end - start).min(block.size))
        })
    }

    /// The name of the block's object.
    pub fn key(&self, block: BlockKey) -> String {
        let (id, index, size) = (block.slice.0, block.index, block.size);
        if self.hash_prefix {
            return format!("chunks/{:02X}/{}/{id}_{index}_{size}", id % 256, id / 1_000_000);
        }
        format!("chunks/{}/{}/{id}_{index}_{size}", id / 1_000_000, id / 1000)
    }

    /// The block that an object holds; none if its key is not one of a block in this layout.
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
    fn keys_are_those_of_the_go_client() {
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
    fn keys_read_back_and_foreign_ones_do_not() {
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
    fn a_range_falls_into_parts_of_blocks() {
        let block = PLAIN.block_size;
        let parts: Vec<_> = PLAIN
            .pieces(slice(1, 2 * block + 10), block - 5..2 * block + 99)
            .map(|(block, part)| (block.index, block.size, part))
            .collect();
        assert_eq!(parts, [(0, block, block - 5..block), (1, block, 0..block), (2, 10, 0..10)]);
        assert_eq!(PLAIN.pieces(slice(1, 10), 10..20).count(), 0);
    }
}
