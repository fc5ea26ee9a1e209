use super::*;
use crate::chunk::cache::accounting::tests::{BIG, NOW, SIZE, SMALL, accounting, block};

const CAPACITY: u64 = 100 * SIZE;

/// Evicts `count` blocks and returns how many of each volume are left.
fn left(accounting: &mut Accounting, count: u64) -> (u64, u64) {
    let goal = EvictionGoal { bytes: accounting.bytes() - count * SIZE, blocks: u64::MAX };
    let chosen = accounting.evict(goal, CAPACITY, NOW, usize::MAX);
    assert_eq!(chosen.len() as u64, count);
    (accounting.usage(BIG).blocks, accounting.usage(SMALL).blocks)
}

#[test]
fn a_volume_over_its_share_loses_blocks_first() {
    for eviction in [Eviction::TwoRandom, Eviction::Lru] {
        let mut accounting = accounting(eviction, (60, 9000), (40, 0));
        accounting.set_share(SMALL, Some(10 * SIZE));
        assert_eq!(left(&mut accounting, 30), (60, 10), "{eviction:?}");
    }
}

#[test]
fn a_small_volume_in_use_is_not_starved_by_a_big_one() {
    for eviction in [Eviction::TwoRandom, Eviction::Lru] {
        let mut accounting = accounting(eviction, (95, 0), (5, PROTECTED_SECONDS));
        assert_eq!(left(&mut accounting, 45), (50, 5), "{eviction:?}");
    }
}

#[test]
fn a_volume_that_is_no_longer_used_makes_room_for_one_that_is() {
    let mut accounting = accounting(Eviction::Lru, (70, 0), (30, PROTECTED_SECONDS + 1));
    assert_eq!(left(&mut accounting, 30), (70, 0));
}

#[test]
fn within_their_fair_shares_all_volumes_lose_blocks() {
    let mut accounting = accounting(Eviction::TwoRandom, (20, 0), (20, 0));
    let (big, small) = left(&mut accounting, 20);
    assert!(big < 20 && small < 20, "{big} and {small} are left");
}

#[test]
fn staged_blocks_are_neither_counted_nor_evicted() {
    let mut accounting = accounting(Eviction::TwoRandom, (1, 0), (0, 0));
    for slice in 100..110 {
        accounting.insert(BIG, IndexEntry { block: block(slice), atime: 0, staged: true });
    }
    assert_eq!(accounting.bytes(), SIZE);
    let goal = EvictionGoal { bytes: 0, blocks: 0 };
    assert_eq!(
        accounting.evict(goal, CAPACITY, NOW, usize::MAX),
        [Victim { account: BIG, block: block(0) }]
    );
    let usage = accounting.usage(BIG);
    assert_eq!((usage.staged_blocks, usage.staged_bytes), (10, 10 * SIZE));
    accounting.insert(BIG, IndexEntry { block: block(100), atime: 0, staged: false });
    assert_eq!(accounting.bytes(), SIZE);
    assert_eq!(accounting.usage(BIG).staged_blocks, 9);
}

#[test]
fn the_policy_none_evicts_nothing() {
    let mut accounting = accounting(Eviction::None, (10, 0), (10, 0));
    assert_eq!(accounting.evict(EvictionGoal { bytes: 0, blocks: 0 }, CAPACITY, NOW, 9), []);
}
