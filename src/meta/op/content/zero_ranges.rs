//! Zero ranges: the slice records that make a range of a file read as zeros.
//!
//! Pure functions. Written bytes stay in their slices, so a range that must read as zeros gets
//! records that cover exactly this range.

use std::ops::Range;

use crate::meta::Ino;
use crate::meta::chunk_range::{ChunkRange, chunk_index, split_at_chunks};
use crate::meta::engine::Change;
use crate::meta::record::chunk::CHUNK_BITS;
use crate::meta::record::{CHUNK_SIZE, Slice};

/// With this many whole chunks in a range, the existing ones are listed first.
const MANY: u64 = 1024;

/// Whether a range covers so many whole chunks that a record for each would be a waste.
pub fn is_wide(range: &Range<u64>) -> bool {
    range.end.saturating_sub(range.start) >> CHUNK_BITS >= MANY
}

/// The records for a change of length over `[shorter, longer)`. The first and the last chunk always
/// get one, a chunk between them only if it exists. `present` lists the existing chunks, if they
/// are known.
pub fn records_for_resize(ino: Ino, range: Range<u64>, present: Option<&[u32]>) -> Vec<Change> {
    let first = chunk_index(range.start);
    let last = chunk_index(range.end);
    let between = |index: u32| first < index && index < last;
    let mut changes = Vec::new();
    match present {
        None => changes
            .extend(split_at_chunks(range).map(|part| zero_record(ino, part, between(part.index)))),
        Some(present) => {
            changes.extend(ends(&range).map(|part| zero_record(ino, part, false)));
            changes.extend(whole(present, between).map(|part| zero_record(ino, part, true)));
        }
    }
    changes
}

/// The records for zeros over `range`. Every chunk gets one; if `present` is given, a whole chunk
/// only if it is listed there.
pub fn records_for_zeroing(ino: Ino, range: Range<u64>, present: Option<&[u32]>) -> Vec<Change> {
    let Some(present) = present else {
        return split_at_chunks(range).map(|part| zero_record(ino, part, false)).collect();
    };
    let covered = |index: u32| {
        let start = u64::from(index) << CHUNK_BITS;
        range.start <= start && start + CHUNK_SIZE <= range.end
    };
    ends(&range)
        .filter(|part| !part.is_whole())
        .map(|part| zero_record(ino, part, false))
        .chain(whole(present, covered).map(|part| zero_record(ino, part, true)))
        .collect()
}

/// The first and the last part of a range, without iterating over the chunks between them.
fn ends(range: &Range<u64>) -> impl Iterator<Item = ChunkRange> {
    let tail = range.end & !(CHUNK_SIZE - 1);
    let head_end = ((range.start >> CHUNK_BITS) + 1) << CHUNK_BITS;
    let head = split_at_chunks(range.start..range.end.min(head_end));
    head.chain(split_at_chunks(tail.max(head_end)..range.end))
}

fn whole(present: &[u32], wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = ChunkRange> {
    present.iter().copied().filter(move |index| wanted(*index)).map(ChunkRange::whole)
}

/// Returns the record that zeroes this part of a file. With `if_present` a chunk that does not exist
/// stays absent: it reads as zeros anyway.
fn zero_record(ino: Ino, part: ChunkRange, if_present: bool) -> Change {
    let slices = vec![Slice::hole(part.pos, part.len)];
    Change::AppendSlices { ino, index: part.index, slices, if_present }
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
        rows(&records_for_resize(FILE, from * MIB..to * MIB, None))
    }

    #[test]
    fn a_new_file_of_200_mib_gets_records_in_its_first_and_last_chunk() {
        assert_eq!(
            resize(0, 200),
            [(0, 0, 64, false), (1, 0, 64, true), (2, 0, 64, true), (3, 0, 8, false)]
        );
    }

    #[test]
    fn every_resize_covers_exactly_the_changed_range() {
        for (from, to, expected) in [
            // Within one chunk.
            (1, 2, vec![(0, 1, 1, false)]),
            // Up to the end of a chunk.
            (1, 64, vec![(0, 1, 63, false)]),
            (0, 64, vec![(0, 0, 64, false)]),
            // From the end of a chunk into the next.
            (64, 65, vec![(1, 0, 1, false)]),
            (64, 128, vec![(1, 0, 64, false)]),
            // Over one boundary.
            (63, 65, vec![(0, 63, 1, false), (1, 0, 1, false)]),
            // The second chunk is covered completely and is the last one, so it counts as between.
            (63, 128, vec![(0, 63, 1, false), (1, 0, 64, true)]),
            // 200 to 65 MiB, and from there to 70.
            (65, 200, vec![(1, 1, 63, false), (2, 0, 64, true), (3, 0, 8, false)]),
            (65, 70, vec![(1, 1, 5, false)]),
        ] {
            assert_eq!(resize(from, to), expected, "{from}..{to}");
        }
    }

    #[test]
    fn between_the_ends_only_known_chunks_get_records() {
        let changes =
            records_for_resize(FILE, 63 * MIB..201 * 64 * MIB + MIB, Some(&[0, 7, 200, 201, 300]));
        assert_eq!(
            rows(&changes),
            [(0, 63, 1, false), (201, 0, 1, false), (7, 0, 64, true), (200, 0, 64, true)]
        );
    }

    #[test]
    fn known_chunks_give_the_same_records_as_all_chunks() {
        for (from, to) in [(0, 200), (1, 2), (63, 128), (64, 128), (65, 400), (128, 129)] {
            let range = from * MIB..to * MIB;
            let all: Vec<u32> = (0..10).collect();
            let mut known = rows(&records_for_resize(FILE, range.clone(), Some(&all)));
            known.sort_unstable();
            assert_eq!(known, rows(&records_for_resize(FILE, range, None)), "{from}..{to}");
        }
    }

    #[test]
    fn a_punched_range_gets_a_record_in_every_chunk() {
        let changes = records_for_zeroing(FILE, 63 * MIB..129 * MIB, None);
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
            let changes = records_for_zeroing(FILE, from * MIB..to * MIB, Some(&[0, 4, 9]));
            assert_eq!(rows(&changes), expected, "{from}..{to}");
        }
    }
}
