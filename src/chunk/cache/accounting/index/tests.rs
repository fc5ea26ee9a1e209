use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn block(slice: u64) -> BlockKey {
    BlockKey { slice: SliceId(slice), index: u32::try_from(slice % 16).unwrap(), size: 4 << 20 }
}

fn entry(slice: u64, atime: u32) -> IndexEntry {
    IndexEntry { block: block(slice), atime, staged: false }
}

#[test]
fn a_million_blocks_take_less_than_a_hundred_bytes_each() {
    let mut index = Index::new();
    let mut worst = 0.0_f64;
    for slice in 0..1_000_000 {
        index.insert(entry(slice, 0), 0);
        if slice > 10_000 {
            worst = worst.max(index.memory() as f64 / index.len() as f64);
        }
    }
    let average = index.memory() as f64 / index.len() as f64;
    assert!(average < 60.0 && worst < 60.0, "{average} bytes for each, {worst} at worst");
    for slice in 0..990_000 {
        index.remove(block(slice)).unwrap();
    }
    assert!(index.slots.capacity() < 30_000, "room for {} is kept", index.slots.capacity());
    assert!((990_000..1_000_000).all(|slice| index.find(block(slice)).is_some()));
}

#[test]
fn a_slot_is_32_bytes() {
    assert_eq!(size_of::<Slot>(), 32);
}

#[test]
fn the_least_recently_used_comes_first() {
    let mut index = Index::new();
    for slice in 1..=4 {
        index.insert(entry(slice, 10 * u32::try_from(slice).unwrap()), 0);
    }
    index.touch(block(1), 50);
    let mut order = Vec::new();
    while let Some(entry) = index.least_recent() {
        order.push(entry.block.slice.0);
        index.remove(entry.block);
    }
    assert_eq!(order, [2, 3, 4, 1]);
}

#[test]
fn reorder_sorts_blocks_by_their_time_of_use() {
    let mut index = Index::new();
    for (slice, atime) in [(1, 30), (2, 10), (3, 20)] {
        index.insert(entry(slice, atime), 0);
    }
    index.reorder();
    assert_eq!(index.least_recent().unwrap().block, block(2));
}

#[test]
fn staged_blocks_are_never_chosen() {
    let mut index = Index::new();
    for slice in 0..100 {
        index.insert(IndexEntry { staged: slice != 42, ..entry(slice, 0) }, 0);
    }
    for _ in 0..50 {
        assert_eq!(index.older_of_two().unwrap().block, block(42));
    }
    assert_eq!(index.least_recent().unwrap().block, block(42));
    index.remove(block(42));
    assert_eq!(index.older_of_two(), None);
    assert_eq!(index.least_recent(), None);
}

#[test]
fn of_two_the_older_is_chosen() {
    let mut index = Index::new();
    index.insert(entry(1, 10), 0);
    index.insert(entry(2, 20), 0);
    let chosen: Vec<u64> = (0..100).map(|_| index.older_of_two().unwrap().block.slice.0).collect();
    let newer = chosen.iter().filter(|slice| **slice == 2).count();
    assert!(newer < 60, "the newer one was chosen {newer} latencies of 100");
    assert!(chosen.contains(&1));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, bool),
    Touch(u64),
    Remove(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slice = 0..40_u64;
    let step = prop_oneof![
        3 => (slice.clone(), any::<bool>()).prop_map(|(slice, staged)| Step::Insert(slice, staged)),
        2 => slice.clone().prop_map(Step::Touch),
        2 => slice.prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn it_agrees_with_a_map_and_a_list(steps in steps()) {
        let mut index = Index::new();
        let mut map: HashMap<u64, bool> = HashMap::new();
        let mut order: Vec<u64> = Vec::new();
        for (now, step) in (1..).zip(steps) {
            match step {
                Step::Insert(slice, staged) => {
                    let before = index.insert(IndexEntry { staged, ..entry(slice, now) }, 0);
                    let known = map.insert(slice, staged);
                    prop_assert_eq!(before.map(|entry| entry.staged), known);
                    if staged {
                        order.retain(|other| *other != slice);
                    } else if known != Some(false) {
                        order.push(slice);
                    }
                }
                Step::Touch(slice) => {
                    prop_assert_eq!(index.touch(block(slice), now).is_some(), map.contains_key(&slice));
                    if order.contains(&slice) {
                        order.retain(|other| *other != slice);
                        order.push(slice);
                    }
                }
                Step::Remove(slice) => {
                    prop_assert_eq!(index.remove(block(slice)).is_some(), map.remove(&slice).is_some());
                    order.retain(|other| *other != slice);
                }
            }
            prop_assert_eq!(index.len(), map.len());
            prop_assert_eq!(index.evictable(), order.len());
            let oldest = index.least_recent().map(|entry| entry.block.slice.0);
            prop_assert_eq!(oldest, order.first().copied());
            for slice in 0..40 {
                let found = index.find(block(slice)).map(|entry| entry.staged);
                prop_assert_eq!(found, map.get(&slice).copied());
            }
        }
    }
}
