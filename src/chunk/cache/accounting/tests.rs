use super::*;
use crate::slice::SliceId;

pub const BIG: AccountId = AccountId(1);
pub const SMALL: AccountId = AccountId(2);
pub const SIZE: u64 = 1000;
pub const NOW: u32 = 1_000_000;

pub fn block(slice: u64) -> BlockKey {
    BlockKey { slice: SliceId(slice), index: 0, size: u32::try_from(SIZE).unwrap() }
}

/// Creates two volumes, each with a number of blocks of an age.
pub fn accounting(eviction: Eviction, big: (u64, u32), small: (u64, u32)) -> Accounting {
    let mut accounting = Accounting::new(eviction, 0);
    for (id, (blocks, age)) in [(BIG, big), (SMALL, small)] {
        accounting.open(id, None, true);
        for slice in 0..blocks {
            let entry = IndexEntry { block: block(slice), atime: NOW - age, staged: false };
            accounting.insert(id, entry);
        }
    }
    accounting
}

#[test]
fn the_totals_are_right_after_a_volume_is_closed() {
    let mut accounting = accounting(Eviction::TwoRandom, (10, 0), (5, 0));
    accounting.insert(BIG, IndexEntry { block: block(3), atime: NOW, staged: false });
    accounting.close(BIG);
    assert_eq!((accounting.bytes(), accounting.blocks()), (5 * SIZE, 5));
    accounting.close(SMALL);
    assert_eq!((accounting.bytes(), accounting.blocks()), (0, 0));
}

#[test]
fn a_sweep_drops_blocks_that_the_scan_missed_and_none_that_are_newer() {
    let mut accounting = accounting(Eviction::TwoRandom, (25, 0), (0, 0));
    accounting.begin_scan(BIG);
    for slice in (0..25).step_by(2).chain([99]) {
        accounting.insert(BIG, IndexEntry { block: block(slice), atime: NOW, staged: false });
    }
    let mut from = accounting.len(BIG);
    while from > 0 {
        (from, _) = accounting.sweep(BIG, from, 4, |_, missed| missed);
    }
    assert_eq!(accounting.usage(BIG).blocks, 14);
    assert!(accounting.find(BIG, block(99)).is_some() && accounting.find(BIG, block(1)).is_none());
}
