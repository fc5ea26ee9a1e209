//! Chunk ranges: ranges of a file split at chunk boundaries, and the largest file.

use std::ops::Range;

use super::Ino;
use super::record::CHUNK_SIZE;
use super::record::chunk::CHUNK_BITS;
use crate::error::{Error, Result};

/// The limit of file lengths: every file is shorter.
pub const MAX_FILE_LENGTH: u64 = CHUNK_SIZE << 31;

/// A chunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    pub ino: Ino,
    pub index: u32,
}

/// The part of a file range that lies in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRange {
    pub index: u32,
    pub pos: u32,
    pub len: u32,
}

impl ChunkRange {
    /// The whole of a chunk.
    pub fn whole(index: u32) -> Self {
        Self { index, pos: 0, len: narrow(CHUNK_SIZE) }
    }

    /// Returns which bytes of the file these are.
    pub fn file_range(self) -> Range<u64> {
        let start = u64::from(self.index) * CHUNK_SIZE + u64::from(self.pos);
        start..start + u64::from(self.len)
    }

    pub fn is_whole(self) -> bool {
        u64::from(self.len) == CHUNK_SIZE
    }
}

/// Returns the end of a range; fails with `TooLarge` if no file may reach it.
pub fn check_file_end(start: u64, size: u64) -> Result<u64> {
    start.checked_add(size).filter(|end| *end < MAX_FILE_LENGTH).ok_or(Error::TooLarge)
}

/// Splits a range at chunk boundaries.
pub fn split_at_chunks(range: Range<u64>) -> impl Iterator<Item = ChunkRange> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let pos = start % CHUNK_SIZE;
        let len = (range.end - start).min(CHUNK_SIZE - pos);
        let index = chunk_index(start);
        start += len;
        Some(ChunkRange { index, pos: narrow(pos), len: narrow(len) })
    })
}

/// The index of the chunk that holds a byte.
pub fn chunk_index(offset: u64) -> u32 {
    narrow(offset >> CHUNK_BITS)
}

/// Offsets stay below [`MAX_FILE_LENGTH`], so indexes and positions fit.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_at_chunk_boundaries() {
        let part = |index, pos, len| ChunkRange { index, pos, len };
        let split: Vec<ChunkRange> = split_at_chunks(CHUNK_SIZE - 3..CHUNK_SIZE + 5).collect();
        assert_eq!(split, [part(0, (1 << 26) - 3, 3), part(1, 0, 5)]);
        assert_eq!(split_at_chunks(9..9).count(), 0);
    }

    #[test]
    fn an_end_past_the_largest_file_is_refused() {
        assert_eq!(check_file_end(1, 2).unwrap(), 3);
        assert!(matches!(check_file_end(MAX_FILE_LENGTH - 1, 1), Err(Error::TooLarge)));
        assert!(matches!(check_file_end(u64::MAX, 1), Err(Error::TooLarge)));
    }
}
