//! Zeros: the records that make a range of a file read as zeros.
//!
//! Pure functions. Bytes that were written once stay in their slices, so a range that must read as
//! zeros gets records that cover exactly it.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::Change;
use crate::meta::record::chunk::CHUNK_BITS;
use crate::meta::record::{CHUNK_SIZE, Slice};

/// No file reaches this length.
pub const MAX_LENGTH: u64 = CHUNK_SIZE << 31;

/// With this many whole chunks in a range, those that exist are listed first.
const MANY: u64 = 1024;

/// A part of a range within one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub index: u32,
    pub pos: u32,
    pub len: u32,
}

impl Piece {
    fn is_whole(self) -> bool {
        u64::from(self.len) == CHUNK_SIZE
    }

    /// The record over this piece. With `if_present` a chunk that does not exist stays so: it
    /// reads as zeros already.
    fn erase(self, ino: Ino, if_present: bool) -> Change {
        let slices = vec![Slice::hole(self.pos, self.len)];
        Change::AppendSlices { ino, index: self.index, slices, if_present }
    }
}

/// Refuses an end that no file may have.
pub fn check_end(start: u64, size: u64) -> Result<u64> {
    start.checked_add(size).filter(|end| *end < MAX_LENGTH).ok_or(Error::TooLarge)
}

/// Splits a range at chunk boundaries.
pub fn pieces(range: Range<u64>) -> impl Iterator<Item = Piece> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let pos = start % CHUNK_SIZE;
        let len = (range.end - start).min(CHUNK_SIZE - pos);
        let index = index_of(start);
        start += len;
        Some(Piece { index, pos: narrow(pos), len: narrow(len) })
    })
}

/// The chunk that a byte lies in.
pub fn index_of(offset: u64) -> u32 {
    narrow(offset >> CHUNK_BITS)
}

/// Whether a range holds so many whole chunks that looking at each would be a waste.
pub fn is_wide(range: &Range<u64>) -> bool {
    range.end.saturating_sub(range.start) >> CHUNK_BITS >= MANY
}

/// The records for a change of length over `[shorter, longer)`: the first and the last chunk get
/// theirs in any case, a chunk between them only if it exists. `present` lists the chunks that
/// do, if that is known.
pub fn resized(ino: Ino, range: Range<u64>, present: Option<&[u32]>) -> Vec<Change> {
    let first = index_of(range.start);
    let last = index_of(range.end);
    let between = |index: u32| first < index && index < last;
    let mut changes = Vec::new();
    match present {
        None => changes.extend(pieces(range).map(|piece| piece.erase(ino, between(piece.index)))),
        Some(present) => {
            changes.extend(ends(&range).map(|piece| piece.erase(ino, false)));
            changes.extend(whole(present, between).map(|piece| piece.erase(ino, true)));
        }
    }
    changes
}

/// The records for zeros written over `range`: every chunk gets one, but if `present` is given,
/// whole chunks only if they are in it.
pub fn erased(ino: Ino, range: Range<u64>, present: Option<&[u32]>) -> Vec<Change> {
    let Some(present) = present else {
        return pieces(range).map(|piece| piece.erase(ino, false)).collect();
    };
    let covered = |index: u32| {
        let start = u64::from(index) << CHUNK_BITS;
        range.start <= start && start + CHUNK_SIZE <= range.end
    };
    ends(&range)
        .filter(|piece| !piece.is_whole())
        .map(|piece| piece.erase(ino, false))
        .chain(whole(present, covered).map(|piece| piece.erase(ino, true)))
        .collect()
}

/// The first and the last piece of a range, without walking over what is between.
fn ends(range: &Range<u64>) -> impl Iterator<Item = Piece> {
    let tail = range.end & !(CHUNK_SIZE - 1);
    let head_end = ((range.start >> CHUNK_BITS) + 1) << CHUNK_BITS;
    let head = pieces(range.start..range.end.min(head_end));
    head.chain(pieces(tail.max(head_end)..range.end))
}

fn whole(present: &[u32], wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = Piece> {
    present.iter().copied().filter(move |index| wanted(*index)).map(|index| Piece {
        index,
        pos: 0,
        len: narrow(CHUNK_SIZE),
    })
}

/// Offsets stay below [`MAX_LENGTH`], so indexes and positions fit.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FILE: Ino = Ino(5);

    /// (chunk, pos, len, only if present), lengths and positions in MiB.
    type Row = (u32, u64, u64, bool);

    fn rows(changes: &[Change]) -> Vec<Row> {
        changes
            .iter()
            .map(|change| match change {
                Change::AppendSlices { ino, index, slices, if_present } => {
                    assert_eq!(*ino, FILE);
                    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
                    assert!(slice.id.is_hole() && slice.size == 0 && slice.off == 0);
                    let (pos, len) = (u64::from(slice.pos), u64::from(slice.len));
                    (*index, pos / MIB, len / MIB, *if_present)
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn resize(from: u64, to: u64) -> Vec<Row> {
        rows(&resized(FILE, from * MIB..to * MIB, None))
    }

    #[test]
    fn a_new_file_of_200_mib_gets_records_in_its_first_and_last_chunk() {
        assert_eq!(
            resize(0, 200),
            [(0, 0, 64, false), (1, 0, 64, true), (2, 0, 64, true), (3, 0, 8, false)]
        );
    }

    #[test]
    fn every_way_to_resize_covers_exactly_the_changed_range() {
        for (from, to, expected) in [
            // Within one chunk.
            (1, 2, vec![(0, 1, 1, false)]),
            // Up to the end of a chunk, and no further.
            (1, 64, vec![(0, 1, 63, false)]),
            (0, 64, vec![(0, 0, 64, false)]),
            // From a chunk's end into the next.
            (64, 65, vec![(1, 0, 1, false)]),
            (64, 128, vec![(1, 0, 64, false)]),
            // Over one boundary.
            (63, 65, vec![(0, 63, 1, false), (1, 0, 1, false)]),
            // The second chunk is covered wholly and is the last one: it lies between.
            (63, 128, vec![(0, 63, 1, false), (1, 0, 64, true)]),
            // 200 to 65 MiB, and from there to 70.
            (65, 200, vec![(1, 1, 63, false), (2, 0, 64, true), (3, 0, 8, false)]),
            (65, 70, vec![(1, 1, 5, false)]),
        ] {
            assert_eq!(resize(from, to), expected, "{from}..{to}");
        }
    }

    #[test]
    fn known_chunks_are_the_only_ones_touched_between() {
        let changes = resized(FILE, 63 * MIB..201 * 64 * MIB + MIB, Some(&[0, 7, 200, 201, 300]));
        assert_eq!(
            rows(&changes),
            [(0, 63, 1, false), (201, 0, 1, false), (7, 0, 64, true), (200, 0, 64, true)]
        );
    }

    #[test]
    fn known_chunks_give_what_walking_over_all_gives() {
        for (from, to) in [(0, 200), (1, 2), (63, 128), (64, 128), (65, 400), (128, 129)] {
            let range = from * MIB..to * MIB;
            let all: Vec<u32> = (0..10).collect();
            let mut known = rows(&resized(FILE, range.clone(), Some(&all)));
            known.sort_unstable();
            assert_eq!(known, rows(&resized(FILE, range, None)), "{from}..{to}");
        }
    }

    #[test]
    fn a_punched_range_gets_a_record_in_every_chunk() {
        let changes = erased(FILE, 63 * MIB..129 * MIB, None);
        assert_eq!(rows(&changes), [(0, 63, 1, false), (1, 0, 64, false), (2, 0, 1, false)]);
    }

    #[test]
    fn a_wide_punched_range_skips_chunks_that_do_not_exist() {
        for (from, to, expected) in [
            (63, 64 * 9 + 1, vec![(0, 63, 1, false), (9, 0, 1, false), (4, 0, 64, true)]),
            (64, 64 * 9, vec![(4, 0, 64, true)]),
            (64 * 4, 64 * 5, vec![(4, 0, 64, true)]),
            (64 * 4, 64 * 4 + 5, vec![(4, 0, 5, false)]),
        ] {
            let changes = erased(FILE, from * MIB..to * MIB, Some(&[0, 4, 9]));
            assert_eq!(rows(&changes), expected, "{from}..{to}");
        }
    }

    #[test]
    fn pieces_are_cut_at_chunk_boundaries() {
        let piece = |index, pos, len| Piece { index, pos, len };
        let split: Vec<Piece> = pieces(CHUNK_SIZE - 3..CHUNK_SIZE + 5).collect();
        assert_eq!(split, [piece(0, (1 << 26) - 3, 3), piece(1, 0, 5)]);
        assert_eq!(pieces(9..9).count(), 0);
    }

    #[test]
    fn an_end_past_the_largest_file_is_refused() {
        assert_eq!(check_end(1, 2).unwrap(), 3);
        assert!(matches!(check_end(MAX_LENGTH - 1, 1), Err(Error::TooLarge)));
        assert!(matches!(check_end(u64::MAX, 1), Err(Error::TooLarge)));
    }
}
