//! The format of a block file: data, then checksums, then the footer of a staged block.
//! Byte-compatible with JuiceFS. Pure: does not access the file system.

use std::ops::Range;

use super::footer;
use crate::chunk::cache::options::Checksum;
use crate::crc32c::crc32c;

/// Bytes covered by one checksum.
pub const SEGMENT: u32 = 32 << 10;

/// Bytes read and verified at a time, in whole segments: small enough to be still in the
/// processor's cache when they are verified.
const STRIDE: u32 = 4 * SEGMENT;

/// What follows the data, as derived from the length of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    pub has_checksums: bool,
    /// Offset of the footer.
    pub footer: Option<u64>,
}

impl Trailer {
    /// Derives the trailer of a file of `file_size` bytes for a block of `size` bytes; `None` if no
    /// block file of that size has this length.
    pub fn of(size: u32, file_size: u64) -> Option<Self> {
        let data = u64::from(size);
        let extra = file_size.checked_sub(data)?;
        let sums = u64::from(checksums_len(size));
        // With checksums, a footer is padded to a multiple of four; without them it never is.
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

/// Returns what a file contains after the data.
pub fn trailer(body: &[u8], level: Checksum, tier: u8) -> Vec<u8> {
    let checked = level != Checksum::None;
    let mut trailer = Vec::new();
    if checked {
        let sums = body.chunks(SEGMENT as usize).map(crc32c);
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

/// Parses the checksums of a block.
pub fn parse_checksums(bytes: &[u8]) -> Box<[u32]> {
    bytes.as_chunks().0.iter().map(|sum| u32::from_be_bytes(*sum)).collect()
}

/// Returns the bytes to read so that `range` can be verified as the level requires.
pub fn window(level: Checksum, size: u32, range: &Range<u32>) -> Range<u32> {
    if level != Checksum::Extend {
        return range.clone();
    }
    let end = range.end.checked_next_multiple_of(SEGMENT).unwrap_or(u32::MAX);
    range.start / SEGMENT * SEGMENT..end.min(size)
}

/// Splits a window into strides. No segment lies in two of them.
pub fn strides(window: &Range<u32>) -> impl Iterator<Item = Range<u32>> + use<> {
    let (mut start, end) = (window.start, window.end);
    std::iter::from_fn(move || {
        let next = (start / STRIDE + 1).saturating_mul(STRIDE).min(end);
        let stride = start..next;
        start = next;
        (!stride.is_empty()).then_some(stride)
    })
}

/// Whether the bytes of a stride match the checksums of the block, as far as the level requires.
pub fn is_sound(
    level: Checksum,
    size: u32,
    window: &Range<u32>,
    stride: &Range<u32>,
    bytes: &[u8],
    sums: &[u32],
) -> bool {
    let segments = checkable(level, size, window);
    let first = segments.start.max(stride.start.div_ceil(SEGMENT));
    let end = segments.end.min(stride.end.div_ceil(SEGMENT));
    (first..end).all(|number| {
        let start = number * SEGMENT;
        let end = start.saturating_add(SEGMENT).min(size);
        let segment = (start - stride.start) as usize..(end - stride.start) as usize;
        bytes.get(segment).map(crc32c) == sums.get(number as usize).copied()
    })
}

/// Returns the segments of a window that the level verifies.
fn checkable(level: Checksum, size: u32, window: &Range<u32>) -> Range<u32> {
    let whole = *window == (0..size);
    if level == Checksum::None || (level == Checksum::Full && !whole) {
        return 0..0;
    }
    let first = window.start.div_ceil(SEGMENT);
    let end = if window.end == size { size.div_ceil(SEGMENT) } else { window.end / SEGMENT };
    first..end.max(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEVELS: [Checksum; 4] =
        [Checksum::None, Checksum::Full, Checksum::Shrink, Checksum::Extend];

    fn file(body: &[u8], level: Checksum, tier: u8) -> Vec<u8> {
        [body, &trailer(body, level, tier)].concat()
    }

    /// Verifies all strides of a window.
    fn are_sound(
        level: Checksum,
        size: u32,
        window: &Range<u32>,
        bytes: &[u8],
        sums: &[u32],
    ) -> bool {
        strides(window).all(|stride| {
            let from = (stride.start - window.start) as usize;
            let bytes = &bytes[from..from + stride.len()];
            is_sound(level, size, window, &stride, bytes, sums)
        })
    }

    #[test]
    fn strides_follow_each_other_and_split_no_segment() {
        let strides: Vec<_> = strides(&(STRIDE - 5..3 * STRIDE + 1)).collect();
        let ends = [STRIDE, 2 * STRIDE, 3 * STRIDE, 3 * STRIDE + 1];
        let starts = [STRIDE - 5, STRIDE, 2 * STRIDE, 3 * STRIDE];
        let expected: Vec<_> =
            starts.into_iter().zip(ends).map(|(start, end)| start..end).collect();
        assert_eq!(strides, expected);
        assert_eq!(super::strides(&(7..7)).count(), 0);
    }

    #[test]
    fn files_match_the_go_client() {
        assert_eq!(file(b"x\n", Checksum::Extend, 0), *b"x\n\xb8\xce\x48\xd5");
        assert_eq!(file(b"x\n", Checksum::None, 0), *b"x\n");
        let staged = b"x\n\xb8\xce\x48\xd5FS\x00\x10\x82\xa4tier\xcc\x01\xa3pad\xc4\x02\x00\x00";
        assert_eq!(file(b"x\n", Checksum::Full, 1), *staged);
    }

    #[test]
    fn the_length_of_a_file_determines_its_trailer() {
        let size = 100_000;
        let found = |extra: u64| Trailer::of(size, u64::from(size) + extra);
        let known = |has_checksums, footer| Some(Trailer { has_checksums, footer });
        assert_eq!(found(0), known(false, None));
        assert_eq!(found(16), known(true, None));
        assert_eq!(found(36), known(true, Some(100_016)));
        assert_eq!(found(18), known(false, Some(100_000)));
        for cut in [4, 8, 12] {
            assert_eq!(found(cut), None, "checksums cut off after {cut} bytes");
        }
        assert_eq!(Trailer::of(size, 99_999), None);
    }

    /// Generates a block of a few segments and a range of it.
    fn block_and_range() -> impl Strategy<Value = (u32, Range<u32>)> {
        (1..200_000_u32).prop_flat_map(|size| {
            let range = (0..size).prop_flat_map(move |start| (Just(start), start + 1..=size));
            (Just(size), range.prop_map(|(start, end)| start..end))
        })
    }

    fn noise(size: u32) -> Vec<u8> {
        (0..size).map(|i| (i.wrapping_mul(i) >> 5).to_le_bytes()[0]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn every_length_that_is_written_is_recognised((size, _) in block_and_range(), tier in 0..4_u8) {
            for level in LEVELS {
                let file = file(&noise(size), level, tier);
                let found = Trailer::of(size, file.len() as u64).unwrap();
                prop_assert_eq!(found.has_checksums, level != Checksum::None);
                prop_assert_eq!(found.footer.is_some(), tier != 0);
                if let Some(start) = found.footer {
                    prop_assert_eq!(footer::decode(&file[usize::try_from(start).unwrap()..]), Some(tier));
                }
            }
        }

        #[test]
        fn a_window_holds_the_range_and_ends_at_segments((size, range) in block_and_range()) {
            let window = window(Checksum::Extend, size, &range);
            prop_assert!(window.start <= range.start && range.end <= window.end);
            prop_assert!(window.end <= size);
            prop_assert_eq!(window.start % SEGMENT, 0);
            prop_assert!(window.end == size || window.end.is_multiple_of(SEGMENT));
            prop_assert!(range.start - window.start < SEGMENT && window.end - range.end < SEGMENT);
            for level in [Checksum::None, Checksum::Full, Checksum::Shrink] {
                prop_assert_eq!(super::window(level, size, &range), range.clone());
            }
        }

        #[test]
        fn sound_bytes_pass_and_a_flipped_bit_shows_where_it_must(
            (size, range) in block_and_range(),
            at in 0..u32::MAX,
            bit in 0..8_u32,
        ) {
            let body = noise(size);
            let sums = parse_checksums(&trailer(&body, Checksum::Full, 0));
            for level in LEVELS {
                let window = window(level, size, &range);
                let mut bytes = body[window.start as usize..window.end as usize].to_vec();
                prop_assert!(are_sound(level, size, &window, &bytes, &sums));
                let at = window.start + at % (window.end - window.start);
                bytes[(at - window.start) as usize] ^= 1_u8 << bit;
                let segment = at / SEGMENT * SEGMENT;
                let inside = window.start <= segment && (segment + SEGMENT).min(size) <= window.end;
                let checked = match level {
                    Checksum::None => false,
                    Checksum::Full => window == (0..size),
                    Checksum::Shrink => inside,
                    Checksum::Extend => true,
                };
                prop_assert_eq!(are_sound(level, size, &window, &bytes, &sums), !checked);
            }
        }

        #[test]
        fn a_damaged_checksum_shows((size, range) in block_and_range(), bit in 0..32) {
            let body = noise(size);
            let mut sums = parse_checksums(&trailer(&body, Checksum::Full, 0));
            let window = window(Checksum::Extend, size, &range);
            sums[(window.start / SEGMENT) as usize] ^= 1_u32 << bit;
            let bytes = &body[window.start as usize..window.end as usize];
            prop_assert!(!are_sound(Checksum::Extend, size, &window, bytes, &sums));
        }
    }
}
