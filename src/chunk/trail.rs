//! The trail of reads of parts of blocks: tells a stream from reads at random.

use std::num::NonZeroUsize;
use std::ops::Range;

use lru::LruCache;

use super::BlockKey;
use crate::sync::Mutex;

/// Blocks remembered: more streams than that at once are as good as random.
const BLOCKS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Where the last read of a part ended, by block.
pub struct Trail {
    ends: Mutex<LruCache<BlockKey, u32>>,
}

impl Default for Trail {
    fn default() -> Self {
        Self { ends: Mutex::new(LruCache::new(BLOCKS)) }
    }
}

impl Trail {
    /// Takes note of a read. Answers whether it goes on where the last one of this block ended.
    pub fn goes_on(&self, block: BlockKey, part: &Range<u32>) -> bool {
        let mut ends = self.ends.lock();
        ends.put(block, part.end) == Some(part.start)
    }
}
