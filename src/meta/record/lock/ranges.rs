//! Locking and unlocking ranges of one owner.
//!
//! Ranges are sorted by start and do not overlap; adjacent ones of the same kind and process are
//! merged.

use super::PlockRange;

/// Returns the ranges with `new`, which replaces everything it covers.
pub fn lock(ranges: &[PlockRange], new: PlockRange) -> Vec<PlockRange> {
    if new.start > new.end {
        return ranges.to_vec();
    }
    let mut ranges = unlock(ranges, new.start, new.end);
    let at = ranges.partition_point(|range| range.start < new.start);
    ranges.insert(at, new);
    ranges.dedup_by(|next, last| {
        let joins = (last.kind, last.pid) == (next.kind, next.pid)
            && last.end.checked_add(1) == Some(next.start);
        if joins {
            last.end = next.end;
        }
        joins
    });
    ranges
}

/// Returns the ranges without `start..=end`.
pub fn unlock(ranges: &[PlockRange], start: u64, end: u64) -> Vec<PlockRange> {
    if start > end {
        return ranges.to_vec();
    }
    let mut left = Vec::with_capacity(ranges.len() + 2);
    for range in ranges {
        if range.end < start || range.start > end {
            left.push(*range);
            continue;
        }
        if range.start < start {
            left.push(PlockRange { end: start - 1, ..*range });
        }
        if range.end > end {
            left.push(PlockRange { start: end + 1, ..*range });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::meta::record::LockKind::{self, Read, Write};

    const fn range(kind: LockKind, pid: u32, start: u64, end: u64) -> PlockRange {
        PlockRange { kind, pid, start, end }
    }

    #[test]
    fn a_lock_replaces_what_it_covers() {
        let held = [range(Read, 1, 0, 9), range(Read, 1, 20, 29)];
        assert_eq!(
            lock(&held, range(Write, 1, 5, 24)),
            [range(Read, 1, 0, 4), range(Write, 1, 5, 24), range(Read, 1, 25, 29)]
        );
    }

    #[test]
    fn a_lock_within_a_range_splits_it() {
        assert_eq!(
            lock(&[range(Write, 1, 0, 9)], range(Read, 1, 3, 5)),
            [range(Write, 1, 0, 2), range(Read, 1, 3, 5), range(Write, 1, 6, 9)]
        );
    }

    #[test]
    fn adjacent_ranges_of_one_kind_and_process_are_merged() {
        let held = [range(Read, 1, 0, 4), range(Read, 1, 10, 14)];
        assert_eq!(lock(&held, range(Read, 1, 5, 9)), [range(Read, 1, 0, 14)]);
        assert_eq!(lock(&held, range(Read, 2, 5, 9)).len(), 3);
        assert_eq!(lock(&held, range(Write, 1, 5, 9)).len(), 3);
    }

    #[test]
    fn unlocking_truncates_ranges() {
        let held = [range(Read, 1, 0, 9), range(Write, 1, 10, 19)];
        assert_eq!(unlock(&held, 5, 5), [range(Read, 1, 0, 4), range(Read, 1, 6, 9), held[1]]);
        assert_eq!(unlock(&held, 9, 10), [range(Read, 1, 0, 8), range(Write, 1, 11, 19)]);
        assert_eq!(unlock(&held, 20, 30), held);
        assert_eq!(unlock(&held, 0, u64::MAX), []);
    }

    #[test]
    fn the_very_last_byte_can_be_locked() {
        let all = lock(&[], range(Write, 1, 0, u64::MAX));
        assert_eq!(lock(&all, range(Read, 1, u64::MAX, u64::MAX)).len(), 2);
        assert_eq!(unlock(&all, u64::MAX, u64::MAX), [range(Write, 1, 0, u64::MAX - 1)]);
    }

    #[test]
    fn a_range_that_ends_before_it_starts_changes_nothing() {
        let held = [range(Read, 1, 0, 9)];
        assert_eq!(lock(&held, range(Write, 1, 5, 4)), held);
        assert_eq!(unlock(&held, 5, 4), held);
    }

    /// Locks (or, without a kind, unlocks) of one owner on 24 bytes, in order.
    fn steps() -> impl Strategy<Value = Vec<(Option<LockKind>, u32, u64, u64)>> {
        let kind = prop::sample::select(&[None, Some(Read), Some(Write)]);
        prop::collection::vec((kind, 1u32..3, 0u64..24, 0u64..24), 0..30)
    }

    proptest! {
        #[test]
        fn ranges_match_a_lock_per_byte(steps in steps()) {
            let mut bytes = [None; 24];
            let mut ranges = Vec::new();
            for (kind, pid, start, end) in steps {
                ranges = match kind {
                    Some(kind) => lock(&ranges, range(kind, pid, start, end)),
                    None => unlock(&ranges, start, end),
                };
                for at in start..=end {
                    bytes[usize::try_from(at).unwrap()] = kind.map(|kind| (kind, pid));
                }
                for (at, byte) in (0u64..).zip(&bytes) {
                    let over: Vec<_> =
                        ranges.iter().filter(|r| r.start <= at && at <= r.end).collect();
                    prop_assert!(over.len() <= 1);
                    prop_assert_eq!(over.first().map(|r| (r.kind, r.pid)), *byte);
                }
                for pair in ranges.windows(2) {
                    prop_assert!(pair[0].end < pair[1].start);
                    prop_assert!(
                        pair[0].end + 1 < pair[1].start
                            || (pair[0].kind, pair[0].pid) != (pair[1].kind, pair[1].pid)
                    );
                }
            }
        }
    }
}
