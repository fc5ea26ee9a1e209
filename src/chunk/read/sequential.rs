//! Detection of sequential reads: tells a stream from random reads of parts of blocks.

use std::num::NonZeroUsize;
use std::ops::Range;

use lru::LruCache;

use crate::chunk::BlockKey;
use crate::sync::Mutex;

/// Blocks remembered. More concurrent streams than this look like random reads.
const MAX_BLOCKS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Remembers, for each block, where the last read of a part of it ended.
pub struct SequentialReads {
    ends: Mutex<LruCache<BlockKey, u32>>,
}

impl Default for SequentialReads {
    fn default() -> Self {
        Self { ends: Mutex::new(LruCache::new(MAX_BLOCKS)) }
    }
}

impl SequentialReads {
    /// Records a read. Returns whether it continues where the last read of this block ended.
    pub fn continues(&self, block: BlockKey, range: &Range<u32>) -> bool {
        let mut ends = self.ends.lock();
        ends.put(block, range.end) == Some(range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    #[test]
    fn a_read_continues_only_where_the_last_one_of_its_block_ended() {
        let reads = SequentialReads::default();
        let block = |id| BlockKey { slice: SliceId(id), index: 0, size: 100 };
        assert!(!reads.continues(block(1), &(10..20)));
        assert!(!reads.continues(block(2), &(20..30)));
        assert!(reads.continues(block(1), &(20..30)));
        assert!(!reads.continues(block(1), &(40..50)));
    }
}
