//! A set of inodes or slice ids. Ids are allocated in sequence, so a bit per id is the smallest
//! form of a dense set; sparse parts are lists.

use std::collections::BTreeMap;

/// Ids of one block.
const BLOCK_BITS: u32 = 14;
/// A block with more ids is a bitmap.
const LIST: usize = 256;

#[derive(Debug, Default)]
pub struct IdSet {
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
enum Block {
    /// Sorted.
    List(Vec<u16>),
    Bits(Box<[u64]>),
}

impl IdSet {
    /// Adds an id. Returns false if it was there.
    pub fn insert(&mut self, id: u64) -> bool {
        // The remainder has fourteen bits.
        let rest = (id & ((1 << BLOCK_BITS) - 1)) as u16;
        let block = self.blocks.entry(id >> BLOCK_BITS).or_insert(Block::List(Vec::new()));
        block.insert(rest)
    }
}

impl Block {
    fn insert(&mut self, id: u16) -> bool {
        match self {
            Self::List(list) => {
                let Err(at) = list.binary_search(&id) else { return false };
                list.insert(at, id);
                if list.len() > LIST {
                    let mut bits = vec![0; (1 << BLOCK_BITS) / 64].into_boxed_slice();
                    for id in list {
                        bits[usize::from(*id / 64)] |= 1 << (*id % 64);
                    }
                    *self = Self::Bits(bits);
                }
                true
            }
            Self::Bits(bits) => {
                let (word, bit) = (&mut bits[usize::from(id / 64)], 1 << (id % 64));
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_million_ids_in_sequence_take_less_than_a_byte_each() {
        let mut set = IdSet::default();
        for id in 0..1_000_000 {
            assert!(set.insert(id));
        }
        assert!((0..1_000_000).all(|id| !set.insert(id)));
        let bytes: usize = set
            .blocks
            .values()
            .map(|block| match block {
                Block::List(list) => list.capacity() * 2,
                Block::Bits(bits) => bits.len() * 8,
            })
            .sum();
        assert!(bytes < 1_000_000, "{bytes}");
    }

    proptest! {
        #[test]
        fn the_set_behaves_as_any_other(ids in prop::collection::vec(0u64..2000, 0..1500)) {
            let (mut ours, mut theirs) = (IdSet::default(), HashSet::new());
            for id in ids {
                let id = if id % 7 == 0 { u64::MAX - id } else { id };
                prop_assert_eq!(ours.insert(id), theirs.insert(id));
            }
        }
    }
}
