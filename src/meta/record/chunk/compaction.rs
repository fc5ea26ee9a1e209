//! Planning a compaction: which records of a chunk are replaced by one new slice.

use super::Slice;
use super::visible_slices::visible_slices;
use crate::meta::SliceId;
use crate::meta::record::SliceSize;

/// How many records one compaction covers; the others are left for the next one.
const MAX_RECORDS: usize = 1000;
/// A first record shorter than this is rewritten rather than skipped.
const MIN_SKIPPED: u32 = 1 << 20;
/// So is one shorter than the size of the rewrite divided by this.
const SKIPPED_DIVISOR: u32 = 5;
/// Shorter holes between data become zeros: file systems report no holes within a page.
const MIN_HOLE: u32 = 4096;
/// How many holes between data stay holes. If there are more, the smaller ones become zeros: each
/// hole is a record, and the purpose of compaction is to have few.
const MAX_HOLES: usize = 100;

/// A plan to replace many records by one new slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Records at the start that stay.
    pub skipped: usize,
    /// Records after them that are replaced.
    pub replaced: usize,
    /// The position of the new slice in the chunk.
    pub pos: u32,
    /// The length of the new slice.
    pub size: u32,
    /// The content of the new slice, contiguous from `pos`; holes are written as zeros.
    pub fragments: Vec<Slice>,
    /// Holes recorded over the new slice, so that its zeros do not count as data.
    pub holes: Vec<Slice>,
}

/// Plans the compaction of a chunk with these records. Returns `None` if it gains nothing.
pub fn plan_compaction(records: &[Slice]) -> Option<Compaction> {
    let records = &records[..records.len().min(MAX_RECORDS)];
    // Each skipped record covers at least 1 MiB of the chunk that no later record touches, so there
    // are at most 64 of them.
    let mut skipped = 0;
    loop {
        let rest = &records[skipped..];
        let (first, later) = rest.split_first()?;
        let fragments = trimmed(visible_slices(rest));
        let pos = fragments.first().map_or(first.pos, |fragment| fragment.pos);
        let size = fragments.iter().map(|fragment| fragment.len).sum();
        if can_stay(first, later, &fragments, size) {
            skipped += 1;
            continue;
        }
        let (replaced, holes) = (rest.len(), holes(&fragments));
        return (replaced > 1 + holes.len() && size > 0).then_some(Compaction {
            skipped,
            replaced,
            pos,
            size,
            fragments,
            holes,
        });
    }
}

/// Returns whether the first record is large, completely visible, before all others, and not
/// repeated later.
fn can_stay(first: &Slice, later: &[Slice], fragments: &[Slice], size: u32) -> bool {
    first.len >= MIN_SKIPPED
        && first.len.saturating_mul(SKIPPED_DIVISOR) >= size
        && fragments.first().is_some_and(|shown| {
            (shown.pos, shown.id, shown.off, shown.len)
                == (first.pos, first.id, first.off, first.len)
        })
        && !later.contains(first)
}

/// Removes the holes at both ends. If there are only holes, returns one zero byte, so that there is
/// something to write.
fn trimmed(mut fragments: Vec<Slice>) -> Vec<Slice> {
    let is_data = |fragment: &Slice| !fragment.id.is_hole();
    if let Some(last) = fragments.iter().rposition(is_data) {
        fragments.truncate(last + 1);
        fragments.drain(..fragments.iter().position(is_data).unwrap_or(0));
        return fragments;
    }
    let last = fragments.pop();
    last.map(|hole| Slice { len: 1, ..hole }).into_iter().collect()
}

/// Returns the largest holes among contiguous fragments, in the order of their positions.
fn holes(fragments: &[Slice]) -> Vec<Slice> {
    let mut holes: Vec<Slice> = Vec::new();
    for hole in fragments.iter().filter(|fragment| fragment.id.is_hole()) {
        match holes.last_mut() {
            Some(last) if last.end() == hole.pos => last.len += hole.len,
            _ => holes.push(Slice::hole(hole.pos, hole.len)),
        }
    }
    holes.retain(|hole| hole.len >= MIN_HOLE);
    holes.sort_by_key(|hole| std::cmp::Reverse(hole.len));
    holes.truncate(MAX_HOLES);
    holes.sort_by_key(|hole| hole.pos);
    holes
}

impl Compaction {
    /// Returns how many records from the start must be unchanged for the plan to hold.
    pub fn guarded(&self) -> usize {
        self.skipped + self.replaced
    }

    /// Returns the records that replace the guarded ones, once slice `id` is written.
    pub fn result(&self, records: &[Slice], id: SliceId) -> Vec<Slice> {
        let new = Slice { pos: self.pos, id, size: self.size, off: 0, len: self.size };
        let kept = records.iter().take(self.skipped).copied();
        kept.chain([new]).chain(self.holes.iter().copied()).collect()
    }

    /// Returns the slices that lose a reference, once for each replaced record.
    pub fn released(&self, records: &[Slice]) -> Vec<SliceSize> {
        records
            .iter()
            .skip(self.skipped)
            .take(self.replaced)
            .filter(|record| !record.id.is_hole())
            .map(|record| SliceSize { id: record.id, size: record.size })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::meta::record::chunk::visible_slices::tests::{bytes, records, slice};

    const MIB: u32 = 1 << 20;

    #[test]
    fn fewer_than_two_records_are_left_alone() {
        assert_eq!(plan_compaction(&[]), None);
        assert_eq!(plan_compaction(&[slice(0, 1, 10, 0, 10)]), None);
    }

    #[test]
    fn small_overlapping_records_become_one_slice() {
        let records: Vec<_> =
            (0..4).map(|i| slice(i * 500, u64::from(i) + 5, 1000, 0, 1000)).collect();
        let plan = plan_compaction(&records).unwrap();
        assert_eq!((plan.skipped, plan.replaced, plan.pos, plan.size), (0, 4, 0, 2500));
        assert_eq!(plan.guarded(), 4);
        assert_eq!(plan.result(&records, SliceId(9)), [slice(0, 9, 2500, 0, 2500)]);
        let released: Vec<_> = plan.released(&records).iter().map(|s| (s.id.0, s.size)).collect();
        assert_eq!(released, [(5, 1000), (6, 1000), (7, 1000), (8, 1000)]);
    }

    #[test]
    fn holes_at_both_ends_are_not_rewritten() {
        let records = [
            Slice::hole(0, 100),
            slice(100, 1, 10, 0, 10),
            slice(120, 2, 10, 0, 10),
            Slice::hole(125, 100),
        ];
        let plan = plan_compaction(&records).unwrap();
        assert_eq!((plan.pos, plan.size), (100, 25));
        assert_eq!(
            plan.fragments,
            [slice(100, 1, 10, 0, 10), Slice::hole(110, 10), slice(120, 2, 10, 0, 5)]
        );
    }

    #[test]
    fn nothing_but_holes_becomes_one_zero_byte() {
        let records = [Slice::hole(0, 64 * MIB), Slice::hole(10, 20)];
        let plan = plan_compaction(&records).unwrap();
        assert_eq!((plan.pos, plan.size, plan.fragments.len()), (30, 1, 1));
        assert!(plan.fragments[0].id.is_hole());
        assert_eq!(plan.released(&records), []);
    }

    #[test]
    fn holes_between_data_are_recorded_over_the_new_slice() {
        let page = MIN_HOLE;
        let records = [
            slice(0, 1, page, 0, page),
            slice(5 * page, 2, 10, 0, 10),
            slice(5 * page + 5, 3, page, 0, page),
            Slice::hole(9 * page, page / 2),
            slice(10 * page, 4, 10, 0, 10),
        ];
        let plan = plan_compaction(&records).unwrap();
        let after = plan.result(&records, SliceId(9));
        let (size, end) = (10 * page + 10, 6 * page + 5);
        let holes = [Slice::hole(page, 4 * page), Slice::hole(end, 10 * page - end)];
        assert_eq!(after, [slice(0, 9, size, 0, size), holes[0], holes[1]]);
        assert_eq!(plan_compaction(&after), None, "as few as can be");
        assert_eq!(plan_compaction(&[records[0], records[1]]), None, "nothing to gain");
    }

    #[test]
    fn holes_within_a_page_become_zeros() {
        let records = [slice(0, 1, 10, 0, 10), slice(MIN_HOLE, 2, 10, 0, 10)];
        let plan = plan_compaction(&records).unwrap();
        assert_eq!((plan.size, plan.holes), (MIN_HOLE + 10, Vec::new()));
    }

    #[test]
    fn only_the_largest_holes_stay() {
        let records: Vec<_> =
            (0..300).map(|n| slice(n * 5000 + n % 3, u64::from(n) + 1, 10, 0, 10)).collect();
        let plan = plan_compaction(&records).unwrap();
        assert_eq!(plan.holes.len(), MAX_HOLES);
        assert!(plan.holes.iter().all(|hole| hole.len == 4991), "{:?}", plan.holes);
        let after = plan.result(&records, SliceId(999));
        assert_eq!((after.len(), plan_compaction(&after)), (1 + MAX_HOLES, None));
    }

    #[test]
    fn large_records_at_the_start_are_left_alone() {
        let records = [
            slice(0, 1, 4 * MIB, 0, 4 * MIB),
            slice(4 * MIB, 2, 4 * MIB, 0, 4 * MIB),
            slice(8 * MIB, 3, 10, 0, 10),
            slice(8 * MIB + 5, 4, 10, 0, 10),
        ];
        let plan = plan_compaction(&records).unwrap();
        assert_eq!((plan.skipped, plan.replaced, plan.pos, plan.size), (2, 2, 8 * MIB, 15));
        assert_eq!(
            plan.result(&records, SliceId(9)),
            [records[0], records[1], slice(8 * MIB, 9, 15, 0, 15)]
        );
        assert_eq!(plan.released(&records).len(), 2);
    }

    #[test]
    fn a_chunk_of_only_large_records_is_left_alone() {
        let records = [(0, 32), (32, 16), (48, 8), (56, 4)].map(|(pos, len): (u32, u32)| {
            slice(pos * MIB, u64::from(pos) + 1, len * MIB, 0, len * MIB)
        });
        assert_eq!(plan_compaction(&records), None);
    }

    #[test]
    fn a_large_record_that_is_partly_hidden_is_rewritten() {
        let records = [slice(0, 1, 4 * MIB, 0, 4 * MIB), slice(MIB, 2, 10, 0, 10)];
        let plan = plan_compaction(&records).unwrap();
        assert_eq!((plan.skipped, plan.size, plan.fragments.len()), (0, 4 * MIB, 3));
    }

    #[test]
    fn a_large_record_is_rewritten_if_the_rest_is_much_larger() {
        let records = [slice(0, 1, MIB, 0, MIB), slice(MIB, 2, 5 * MIB, 0, 5 * MIB)];
        assert_eq!(plan_compaction(&records).unwrap().skipped, 0);
    }

    #[test]
    fn a_repeated_record_is_rewritten() {
        let record = slice(0, 1, 4 * MIB, 0, 4 * MIB);
        assert_eq!(plan_compaction(&[record, record]).unwrap().skipped, 0);
    }

    #[test]
    fn at_most_a_thousand_records_are_compacted() {
        let records: Vec<_> = (0..2500).map(|i| slice(i * 7, 1, 10, 0, 10)).collect();
        assert_eq!(plan_compaction(&records).unwrap().guarded(), 1000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn compaction_keeps_every_byte(
            records in records(), unit in prop::sample::select(&[1, MIB])
        ) {
            // With a unit of one MiB, records at the start are skipped; with one byte, none is.
            let scaled = |by: &dyn Fn(u32) -> u32, all: &[Slice]| -> Vec<Slice> {
                let scale = |s: &Slice| slice(by(s.pos), s.id.0, by(s.size), by(s.off), by(s.len));
                all.iter().map(scale).collect()
            };
            let (up, down) = (|n| n * unit, |n| n / unit);
            let records = scaled(&up, &records);
            if let Some(plan) = plan_compaction(&records) {
                prop_assert_eq!(plan.pos, plan.fragments[0].pos);
                prop_assert_eq!(plan.size, plan.fragments.iter().map(|f| f.len).sum::<u32>());
                let content = bytes(&scaled(&down, &plan.fragments));
                let after = plan.result(&records, SliceId(99));
                let before = bytes(&scaled(&down, &records));
                for (at, shown) in bytes(&scaled(&down, &after)).into_iter().enumerate() {
                    if unit >= MIN_HOLE {
                        prop_assert_eq!(shown.is_some(), before[at].is_some(), "a hole stays one");
                    }
                    // A byte of the new slice stands for the byte it was copied from.
                    let shown = if matches!(shown, Some((99, _))) { content[at] } else { shown };
                    prop_assert_eq!(shown, before[at]);
                }
            }
        }
    }
}
