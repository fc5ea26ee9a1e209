//! The file of a cached block: data, then checksums, then the footer of a staged one; byte for byte
//! as JuiceFS writes it. Pure: knows no file system.

use std::ops::Range;

use crc_fast::CrcAlgorithm;

use super::footer;
use super::options::Checksum;

/// Each has a checksum of its own.
pub const SEGMENT: u32 = 32 << 10;

/// What follows the data, as the file's length tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub has_checksums: bool,
    /// Where the footer begins.
    pub footer: Option<u64>,
}

impl Shape {
    /// The shape of a file of `file_size` bytes for a block of `size`; none if it cannot be one.
    pub fn of(size: u32, file_size: u64) -> Option<Self> {
        let data = u64::from(size);
        let extra = file_size.checked_sub(data)?;
        let sums = u64::from(checksums_len(size));
        // With checksums a footer is padded to a multiple of four, without them it never is.
        Some(if extra == 0 {
            Self { has_checksums: false, footer: None }
        } else if extra % 4 != 0 {
            Self { has_checksums: false, footer: Some(data) }
        } else if extra == sums {
            Self { has_checksums: true, footer: None }
        } else if extra > sums {
            Self { has_checksums: true, footer: Some(data + sums) }
        } else {
            return None;
        })
    }
}

/// What a file holds behind the data.
pub fn trailer(body: &[u8], level: Checksum, tier: u8) -> Vec<u8> {
    let checked = level != Checksum::None;
    let mut trailer = Vec::new();
    if checked {
        let sums = body.chunks(SEGMENT as usize).map(checksum);
        trailer.extend(sums.flat_map(u32::to_be_bytes));
    }
    if tier != 0 {
        trailer.extend(footer::encode(tier, checked));
    }
    trailer
}

pub fn checksums_len(size: u32) -> u32 {
    size.div_ceil(SEGMENT) * 4
}

/// The checksums of a block from the bytes of its file.
pub fn parse_checksums(bytes: &[u8]) -> Box<[u32]> {
    bytes.as_chunks().0.iter().map(|sum| u32::from_be_bytes(*sum)).collect()
}

/// The bytes to read so that `range` can be checked as far as the level asks.
pub fn window(level: Checksum, size: u32, range: &Range<u32>) -> Range<u32> {
    if level != Checksum::Extend {
        return range.clone();
    }
    let end = range.end.checked_next_multiple_of(SEGMENT).unwrap_or(u32::MAX);
    range.start / SEGMENT * SEGMENT..end.min(size)
}

/// Whether the bytes of a window agree with the block's checksums, as far as the level asks.
pub fn is_sound(
    level: Checksum,
    size: u32,
    window: &Range<u32>,
    bytes: &[u8],
    sums: &[u32],
) -> bool {
    let segments = checkable(level, size, window);
    segments.into_iter().all(|number| {
        let start = number * SEGMENT;
        let end = start.saturating_add(SEGMENT).min(size);
        let segment = (start - window.start) as usize..(end - window.start) as usize;
        bytes.get(segment).map(checksum) == sums.get(number as usize).copied()
    })
}

/// Which segments of a window the level has checked.
fn checkable(level: Checksum, size: u32, window: &Range<u32>) -> Range<u32> {
    let whole = *window == (0..size);
    if level == Checksum::None || (level == Checksum::Full && !whole) {
        return 0..0;
    }
    let first = window.start.div_ceil(SEGMENT);
    let end = if window.end == size { size.div_ceil(SEGMENT) } else { window.end / SEGMENT };
    first..end.max(first)
}

fn checksum(segment: &[u8]) -> u32 {
    // The algorithm has 32 bits.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, segment) as u32
}
