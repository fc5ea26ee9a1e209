use super::*;
use crate::slice::SliceId;

const BIG: AreaId = AreaId(1);
const SMALL: AreaId = AreaId(2);
const CAPACITY: u64 = 100 * SIZE;
const SIZE: u64 = 1000;
const NOW: u32 = 1_000_000;

fn block(slice: u64) -> BlockKey {
    BlockKey { slice: SliceId(slice), index: 0, size: SIZE as u32 }
}

/// Two volumes with that many blocks of that age.
fn ledger(eviction: Eviction, big: (u64, u32), small: (u64, u32)) -> Ledger {
    let mut ledger = Ledger::new(eviction, 0);
    for (area, (blocks, age)) in [(BIG, big), (SMALL, small)] {
        ledger.open(area, None, true);
        for slice in 0..blocks {
            let entry = Entry { block: block(slice), atime: NOW - age, staged: false };
            ledger.insert(area, entry);
        }
    }
    ledger
}

/// Takes `count` blocks and answers how many of each volume are left.
fn left(ledger: &mut Ledger, count: u64) -> (u64, u64) {
    let goal = Goal { bytes: ledger.bytes() - count * SIZE, blocks: u64::MAX };
    let chosen = ledger.evict(goal, CAPACITY, NOW, usize::MAX);
    assert_eq!(chosen.len() as u64, count);
    (ledger.holding(BIG).blocks, ledger.holding(SMALL).blocks)
}

#[test]
fn a_volume_over_its_share_goes_first() {
    for eviction in [Eviction::TwoRandom, Eviction::Lru] {
        let mut ledger = ledger(eviction, (60, 9000), (40, 0));
        ledger.set_share(SMALL, Some(10 * SIZE));
        assert_eq!(left(&mut ledger, 30), (60, 10), "{eviction:?}");
    }
}

#[test]
fn a_small_volume_in_use_is_not_starved_by_a_big_one() {
    for eviction in [Eviction::TwoRandom, Eviction::Lru] {
        let mut ledger = ledger(eviction, (95, 0), (5, PROTECTED));
        assert_eq!(left(&mut ledger, 45), (50, 5), "{eviction:?}");
    }
}

#[test]
fn a_volume_that_is_no_longer_used_makes_room_for_one_that_is() {
    let mut ledger = ledger(Eviction::Lru, (70, 0), (30, PROTECTED + 1));
    assert_eq!(left(&mut ledger, 30), (70, 0));
}

#[test]
fn when_nobody_has_too_much_all_give() {
    let mut ledger = ledger(Eviction::TwoRandom, (20, 0), (20, 0));
    let (big, small) = left(&mut ledger, 20);
    assert!(big < 20 && small < 20, "{big} and {small} are left");
}

#[test]
fn staged_blocks_are_not_counted_and_not_given_up() {
    let mut ledger = ledger(Eviction::TwoRandom, (1, 0), (0, 0));
    for slice in 100..110 {
        ledger.insert(BIG, Entry { block: block(slice), atime: 0, staged: true });
    }
    assert_eq!(ledger.bytes(), SIZE);
    let goal = Goal { bytes: 0, blocks: 0 };
    assert_eq!(ledger.evict(goal, CAPACITY, NOW, usize::MAX), [(BIG, block(0))]);
    let holding = ledger.holding(BIG);
    assert_eq!((holding.staged_blocks, holding.staged_bytes), (10, 10 * SIZE));
    ledger.insert(BIG, Entry { block: block(100), atime: 0, staged: false });
    assert_eq!(ledger.bytes(), SIZE);
    assert_eq!(ledger.holding(BIG).staged_blocks, 9);
}

#[test]
fn without_eviction_nothing_is_given_up() {
    let mut ledger = ledger(Eviction::None, (10, 0), (10, 0));
    assert_eq!(ledger.evict(Goal { bytes: 0, blocks: 0 }, CAPACITY, NOW, 9), []);
}

#[test]
fn the_books_balance_when_a_volume_is_closed() {
    let mut ledger = ledger(Eviction::TwoRandom, (10, 0), (5, 0));
    ledger.insert(BIG, Entry { block: block(3), atime: NOW, staged: false });
    ledger.close(BIG);
    assert_eq!((ledger.bytes(), ledger.blocks()), (5 * SIZE, 5));
    ledger.close(SMALL);
    assert_eq!((ledger.bytes(), ledger.blocks()), (0, 0));
}

#[test]
fn a_sweep_drops_what_the_scan_missed_and_nothing_newer() {
    let mut ledger = ledger(Eviction::TwoRandom, (25, 0), (0, 0));
    ledger.begin_scan(BIG);
    for slice in (0..25).step_by(2).chain([99]) {
        ledger.insert(BIG, Entry { block: block(slice), atime: NOW, staged: false });
    }
    let mut from = ledger.len(BIG);
    while from > 0 {
        (from, _) = ledger.sweep(BIG, from, 4, |_, missed| missed);
    }
    assert_eq!(ledger.holding(BIG).blocks, 14);
    assert!(ledger.find(BIG, block(99)).is_some() && ledger.find(BIG, block(1)).is_none());
}
