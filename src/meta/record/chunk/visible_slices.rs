//! Which parts of which slices are visible in a chunk.

use std::collections::BTreeMap;

use super::Slice;
use crate::meta::SliceId;

/// Returns the visible fragments of a chunk, contiguous from position 0.
///
/// Later records hide earlier ones. Positions that no record covers become holes, up to the end of
/// the last record; everything after it reads as zeros too, without a fragment. A hole has no size
/// and no offset. Adjacent fragments of the same slice are not merged.
pub fn visible_slices(records: &[Slice]) -> Vec<Slice> {
    let mut overlay = Overlay::default();
    for record in records {
        overlay.add(record);
    }
    overlay.fragments()
}

/// Fragments by position, without gaps between the first and the last.
#[derive(Default)]
struct Overlay {
    fragments: BTreeMap<u32, Slice>,
}

impl Overlay {
    fn add(&mut self, record: &Slice) {
        let (start, end) = (record.pos, record.end());
        if start == end {
            return;
        }
        let top = Slice { len: end - start, ..normalized(record) };
        match self.span() {
            Some((first, _)) if end < first => self.put(Slice::hole(end, first - end)),
            Some((_, last)) if start > last => self.put(Slice::hole(last, start - last)),
            Some((_, last)) if start < last => self.clear(start, end),
            _ => {}
        }
        self.put(top);
    }

    /// Returns where the fragments begin and end.
    fn span(&self) -> Option<(u32, u32)> {
        let (first, _) = self.fragments.first_key_value()?;
        let (_, last) = self.fragments.last_key_value()?;
        Some((*first, last.end()))
    }

    /// Removes everything in `start..end`, and keeps the parts of fragments outside it.
    fn clear(&mut self, start: u32, end: u32) {
        if let Some((_, under)) = self.fragments.range_mut(..start).next_back()
            && under.end() > start
        {
            let tail = tail_of(under, start);
            under.len = start - under.pos;
            self.put(tail);
        }
        while let Some((&pos, _)) = self.fragments.range(start..end).next() {
            if let Some(hidden) = self.fragments.remove(&pos)
                && hidden.end() > end
            {
                self.put(tail_of(&hidden, end));
            }
        }
    }

    fn put(&mut self, fragment: Slice) {
        self.fragments.insert(fragment.pos, fragment);
    }

    fn fragments(self) -> Vec<Slice> {
        let before = self.span().map_or(0, |(first, _)| first);
        let leading = (before > 0).then(|| Slice::hole(0, before));
        leading.into_iter().chain(self.fragments.into_values()).collect()
    }
}

/// Returns the part of a fragment from position `at` on.
fn tail_of(fragment: &Slice, at: u32) -> Slice {
    let cut = at - fragment.pos;
    normalized(&Slice {
        pos: at,
        off: fragment.off.saturating_add(cut),
        len: fragment.len - cut,
        ..*fragment
    })
}

/// Clears the fields of a hole that have no meaning: stored holes may have any values there.
fn normalized(slice: &Slice) -> Slice {
    if slice.id == SliceId::HOLE { Slice::hole(slice.pos, slice.len) } else { *slice }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::meta::record::chunk;

    pub(crate) fn slice(pos: u32, id: u64, size: u32, off: u32, len: u32) -> Slice {
        Slice { pos, id: SliceId(id), size, off, len }
    }

    const MIB: u32 = 1 << 20;

    #[test]
    fn a_chunk_without_records_has_no_fragments() {
        assert_eq!(visible_slices(&[]), []);
    }

    #[test]
    fn a_single_record_is_visible_as_it_is() {
        let records = [slice(0, 1, 100, 10, 90)];
        assert_eq!(visible_slices(&records), records);
    }

    #[test]
    fn a_gap_before_the_first_record_is_a_hole() {
        let record = slice(50, 1, 10, 0, 10);
        assert_eq!(visible_slices(&[record]), [Slice::hole(0, 50), record]);
    }

    #[test]
    fn gaps_between_records_are_holes_in_any_order_of_records() {
        let (low, high) = (slice(10, 1, 5, 0, 5), slice(30, 2, 5, 0, 5));
        let wanted = [Slice::hole(0, 10), low, Slice::hole(15, 15), high];
        assert_eq!(visible_slices(&[low, high]), wanted);
        assert_eq!(visible_slices(&[high, low]), wanted);
    }

    #[test]
    fn later_records_hide_earlier_ones() {
        let records = [slice(0, 1, 100, 0, 100), Slice::hole(20, 10), slice(90, 2, 30, 0, 30)];
        assert_eq!(
            visible_slices(&records),
            [
                slice(0, 1, 100, 0, 20),
                Slice::hole(20, 10),
                slice(30, 1, 100, 30, 60),
                slice(90, 2, 30, 0, 30),
            ]
        );
    }

    #[test]
    fn adjacent_fragments_of_one_slice_are_not_merged() {
        let records = [slice(0, 1, 100, 0, 50), slice(50, 1, 100, 50, 50)];
        assert_eq!(visible_slices(&records), records);
    }

    #[test]
    fn a_record_hides_all_records_under_it() {
        let mut records: Vec<_> = (0..10).map(|i| slice(i * 10, 7, 100, 0, 10)).collect();
        records.push(slice(5, 8, 90, 0, 90));
        assert_eq!(
            visible_slices(&records),
            [slice(0, 7, 100, 0, 5), slice(5, 8, 90, 0, 90), slice(95, 7, 100, 5, 5)]
        );
    }

    #[test]
    fn a_truncated_and_extended_file_keeps_its_holes() {
        let raw: [u8; 72] = [
            // The records of chunk 1 after truncating to 200 MiB, writing 3 MiB at 63 MiB,
            // truncating to 65 MiB and extending to 70 MiB.
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, //
            0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0xf0, 0, 0, //
            0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0,
        ];
        assert_eq!(
            visible_slices(&chunk::decode(&raw).unwrap()),
            [
                slice(0, 3, 2 * MIB, 0, MIB),
                Slice::hole(MIB, 5 * MIB),
                Slice::hole(6 * MIB, 58 * MIB),
            ]
        );
    }

    #[test]
    fn empty_records_are_ignored() {
        let record = slice(10, 1, 10, 0, 10);
        let empty = slice(15, 2, 10, 0, 0);
        assert_eq!(visible_slices(&[empty, record, empty]), [Slice::hole(0, 10), record]);
    }

    #[test]
    fn a_damaged_record_cannot_extend_past_the_last_position() {
        let fragments =
            visible_slices(&[slice(u32::MAX - 1, 1, 9, u32::MAX, 9), slice(0, 2, 1, 0, 1)]);
        assert_eq!(fragments.last().unwrap().end(), u32::MAX);
    }

    /// Records that overlap a lot, in a chunk of 64 positions.
    pub(crate) fn records() -> impl Strategy<Value = Vec<Slice>> {
        let record = (0u32..64, 0u64..6, 0u32..8, 1u32..24).prop_map(|(pos, id, off, len)| {
            let len = len.min(64 - pos);
            if id == 0 { slice(pos, 0, 0, off, len) } else { slice(pos, id, off + len, off, len) }
        });
        prop::collection::vec(record, 0..24)
    }

    /// Returns the slice and the offset in it for each position, or nothing for zeros.
    pub(crate) fn bytes(records: &[Slice]) -> Vec<Option<(u64, u32)>> {
        let mut bytes = vec![None; 64];
        for record in records {
            for i in 0..record.len {
                let shown = (!record.id.is_hole()).then_some((record.id.0, record.off + i));
                bytes[(record.pos + i) as usize] = shown;
            }
        }
        bytes
    }

    /// Computes the fragments one position at a time: a fragment ends where another record, another
    /// part of the same record, or an uncovered range begins.
    fn naive(records: &[Slice]) -> Vec<Slice> {
        let end = records.iter().map(Slice::end).max().unwrap_or(0);
        let top = |at: u32| records.iter().rposition(|r| r.pos <= at && at < r.end());
        let mut fragments: Vec<(Option<usize>, Slice)> = Vec::new();
        for at in 0..end {
            let over = top(at);
            match fragments.last_mut() {
                Some((last, fragment)) if *last == over => fragment.len += 1,
                _ => {
                    let fragment = match over.map(|i| records[i]) {
                        Some(r) if !r.id.is_hole() => {
                            Slice { pos: at, off: r.off + at - r.pos, len: 1, ..r }
                        }
                        _ => Slice::hole(at, 1),
                    };
                    fragments.push((over, fragment));
                }
            }
        }
        fragments.into_iter().map(|(_, fragment)| fragment).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn fragments_match_a_naive_computation(records in records()) {
            prop_assert_eq!(visible_slices(&records), naive(&records));
        }

        #[test]
        fn fragments_show_the_same_bytes_as_the_records(records in records()) {
            prop_assert_eq!(bytes(&visible_slices(&records)), bytes(&records));
        }
    }
}
