//! The drafts of a file that are not committed, by chunk and in the order of their creation.
//!
//! Knows only their order: uploads and commits happen elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::draft::{Draft, Stage};
use crate::meta::Timestamp;
use crate::meta::chunk_range;
use crate::meta::record::CHUNK_SIZE;

/// How many drafts a write looks back for one to join. Older drafts are frozen: a program that
/// writes at more places at once gains little from joining.
const LOOK_BACK: usize = 4;

#[derive(Default)]
pub struct Drafts {
    /// By chunk index. Within a chunk they are sorted by number: a new draft has the highest.
    chunks: BTreeMap<u32, VecDeque<Draft>>,
    /// The chunk index of every draft, by number.
    chunk_of: BTreeMap<u64, u32>,
}

/// Where a write goes.
pub struct WritePlacement {
    /// The draft that it joins.
    pub joins: Option<u64>,
    /// Drafts that have seen too many newer ones begin, and are to be frozen.
    pub stale: Vec<u64>,
}

impl Drafts {
    pub fn len(&self) -> usize {
        self.chunk_of.len()
    }

    /// Adds a draft, whose number must be the highest.
    pub fn push(&mut self, index: u32, draft: Draft) {
        self.chunk_of.insert(draft.number, index);
        self.chunks.entry(index).or_default().push_back(draft);
    }

    pub fn remove(&mut self, number: u64) -> Option<Draft> {
        let index = self.chunk_of.remove(&number)?;
        let drafts = self.chunks.get_mut(&index)?;
        let at = position(drafts, number)?;
        let draft = drafts.remove(at);
        if drafts.is_empty() {
            self.chunks.remove(&index);
        }
        draft
    }

    /// Removes all drafts but those being committed. Returns them with their chunk indexes.
    pub fn give_up(&mut self) -> Vec<(u32, Draft)> {
        let mut given_up = Vec::new();
        for (index, drafts) in std::mem::take(&mut self.chunks) {
            for draft in drafts {
                if matches!(draft.stage, Stage::Committing) {
                    self.chunks.entry(index).or_default().push_back(draft);
                } else {
                    self.chunk_of.remove(&draft.number);
                    given_up.push((index, draft));
                }
            }
        }
        given_up
    }

    /// Returns a draft and the index of its chunk.
    pub fn find(&mut self, number: u64) -> Option<(u32, &mut Draft)> {
        let index = *self.chunk_of.get(&number)?;
        let drafts = self.chunks.get_mut(&index)?;
        let at = position(drafts, number)?;
        Some((index, &mut drafts[at]))
    }

    pub fn has(&self, number: u64) -> bool {
        self.chunk_of.contains_key(&number)
    }

    /// Returns the numbers of all drafts, the oldest first.
    pub fn numbers(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.chunk_of.keys().copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Draft> {
        self.chunks.values().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Draft> {
        self.chunks.values_mut().flatten()
    }

    /// Finds the newest draft that a write to `start..end` of a chunk may join without changing the
    /// order of visible writes: it must not join a draft older than one that it overlaps.
    pub fn place_write(&self, index: u32, start: u32, end: u32) -> WritePlacement {
        let mut placement = WritePlacement { joins: None, stale: Vec::new() };
        let Some(drafts) = self.chunks.get(&index) else { return placement };
        for (back, draft) in drafts.iter().rev().enumerate() {
            if draft.can_join(start) {
                placement.joins = Some(draft.number);
                return placement;
            }
            if draft.is_open() && back >= LOOK_BACK {
                placement.stale.push(draft.number);
            }
            if draft.overlaps(start, end) {
                return placement;
            }
        }
        placement
    }

    /// Returns the draft that the first draft of chunk `index` must wait for, if the file ends
    /// before that chunk: the last one that grows the chunk before. Otherwise the file could end
    /// after bytes that were written but are not there.
    pub fn growth_before(&self, index: u32, length: u64) -> Option<u64> {
        if self.chunks.contains_key(&index) || u64::from(index) * CHUNK_SIZE < length {
            return None;
        }
        let (_, drafts) = self.chunks.range(..index).next_back()?;
        drafts.iter().rev().find(|draft| draft.grows).map(|draft| draft.number)
    }

    /// Returns the drafts that must be committed before `range` of the file can be read: those that
    /// overlap it, and all that these wait for.
    pub fn needed_to_read(&self, range: Range<u64>) -> BTreeSet<u64> {
        let mut wanted = BTreeSet::new();
        for piece in chunk_range::split_at_chunks(range) {
            let end = piece.pos + piece.len;
            let over = |draft: &&Draft| draft.overlaps(piece.pos, end);
            let drafts = self.chunks.get(&piece.index).into_iter().flatten();
            if let Some(last) = drafts.rev().find(over) {
                self.add_through(piece.index, last.number, &mut wanted);
            }
        }
        wanted
    }

    /// Adds a draft, the earlier ones in its chunk, and those they wait for in other chunks.
    fn add_through(&self, index: u32, number: u64, wanted: &mut BTreeSet<u64>) {
        let drafts = self.chunks.get(&index).into_iter().flatten();
        for draft in drafts.take_while(|draft| draft.number <= number) {
            wanted.insert(draft.number);
            let after = draft.after.and_then(|after| Some((*self.chunk_of.get(&after)?, after)));
            if let Some((index, after)) = after {
                self.add_through(index, after, wanted);
            }
        }
    }

    pub fn is_dirty(&self, range: Range<u64>) -> bool {
        chunk_range::split_at_chunks(range).any(|piece| {
            let drafts = self.chunks.get(&piece.index).into_iter().flatten();
            drafts.into_iter().any(|draft| draft.overlaps(piece.pos, piece.pos + piece.len))
        })
    }

    /// Returns the oldest draft that can be committed now: stored, the first in its chunk, and
    /// waiting for no other.
    pub fn next_to_commit(&self) -> Option<u64> {
        let heads = self.chunks.values().filter_map(VecDeque::front);
        heads
            .filter(|draft| matches!(draft.stage, Stage::Stored(_)))
            .filter(|draft| draft.after.is_none_or(|after| !self.has(after)))
            .map(|draft| draft.number)
            .min()
    }

    /// Returns the end of the drafts data, as an offset in the file.
    pub fn end(&self) -> u64 {
        // Drafts of earlier chunks end before the last chunk begins.
        let Some((index, drafts)) = self.chunks.last_key_value() else { return 0 };
        let end = drafts.iter().map(Draft::end).max().unwrap_or(0);
        u64::from(*index) * CHUNK_SIZE + u64::from(end)
    }

    /// Returns when the last byte was written.
    pub fn mtime(&self) -> Option<Timestamp> {
        self.iter().max_by_key(|draft| draft.touched).map(|draft| draft.mtime)
    }
}

fn position(drafts: &VecDeque<Draft>, number: u64) -> Option<usize> {
    drafts.binary_search_by_key(&number, |draft| draft.number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Budget;

    const BLOCK: u32 = 1 << 10;

    fn add(drafts: &mut Drafts, number: u64, index: u32, pos: u32, len: usize) {
        let mut draft = Draft::new(number, pos, BLOCK);
        if len > 0 {
            draft.grow(1024, Budget::new(1024).try_reserve(1024).unwrap());
            draft.put(pos, &vec![1; len]);
        }
        draft.grows = true;
        drafts.push(index, draft);
    }

    #[test]
    fn a_write_joins_an_older_draft_unless_a_newer_one_lies_in_between() {
        let mut drafts = Drafts::default();
        add(&mut drafts, 1, 0, 0, 100);
        add(&mut drafts, 2, 0, 500, 100);
        assert_eq!(drafts.place_write(0, 100, 200).joins, Some(1));
        assert_eq!(
            drafts.place_write(0, 100, 501).joins,
            None,
            "it would hide the newer one's bytes"
        );
        assert_eq!(drafts.place_write(0, 550, 700).joins, Some(2));
        assert_eq!(drafts.place_write(0, 300, 400).joins, None);
        assert_eq!(drafts.place_write(1, 100, 200).joins, None, "another chunk");
    }

    #[test]
    fn drafts_older_than_the_look_back_are_stale() {
        let mut drafts = Drafts::default();
        for number in 0..6_u32 {
            add(&mut drafts, u64::from(number), 0, number * 2000, 10);
        }
        let placement = drafts.place_write(0, 50_000, 50_010);
        assert_eq!((placement.joins, placement.stale), (None, vec![1, 0]));
    }

    #[test]
    fn a_new_last_chunk_waits_for_the_growth_of_the_one_before() {
        let mut drafts = Drafts::default();
        add(&mut drafts, 1, 0, 0, 100);
        assert_eq!(drafts.growth_before(3, 100), Some(1));
        assert_eq!(drafts.growth_before(3, 4 * CHUNK_SIZE), None, "the file reaches further");
        add(&mut drafts, 2, 3, 0, 100);
        assert_eq!(drafts.growth_before(3, 100), None, "the chunk has a draft already");
    }

    #[test]
    fn drafts_to_read_a_range_include_all_they_wait_for() {
        let mut drafts = Drafts::default();
        add(&mut drafts, 1, 0, 0, 100);
        add(&mut drafts, 2, 0, 5000, 100);
        add(&mut drafts, 3, 1, 0, 100);
        add(&mut drafts, 4, 1, 5000, 100);
        drafts.find(3).unwrap().1.after = Some(2);
        assert!(drafts.needed_to_read(200..300).is_empty());
        assert_eq!(drafts.needed_to_read(50..60), BTreeSet::from([1]));
        assert_eq!(drafts.needed_to_read(CHUNK_SIZE..CHUNK_SIZE + 1), BTreeSet::from([1, 2, 3]));
        assert!(drafts.is_dirty(99..CHUNK_SIZE) && !drafts.is_dirty(100..5000));
    }

    #[test]
    fn the_end_is_that_of_the_last_chunk_with_drafts() {
        let mut drafts = Drafts::default();
        assert_eq!(drafts.end(), 0);
        add(&mut drafts, 1, 2, 10, 100);
        add(&mut drafts, 2, 0, 5000, 100);
        assert_eq!(drafts.end(), 2 * CHUNK_SIZE + 110);
        drafts.remove(1).unwrap();
        assert_eq!((drafts.end(), drafts.len()), (5100, 1));
    }

    #[test]
    fn a_draft_is_found_until_it_is_removed_or_given_up() {
        let mut drafts = Drafts::default();
        for number in 1..=6_u32 {
            add(&mut drafts, u64::from(number), number % 2, number * 2000, 10);
        }
        assert_eq!(drafts.find(4).map(|(index, draft)| (index, draft.pos)), Some((0, 8000)));
        assert_eq!(drafts.remove(3).map(|draft| draft.number), Some(3));
        assert!(drafts.find(3).is_none() && drafts.remove(3).is_none() && !drafts.has(3));
        drafts.find(5).unwrap().1.stage = Stage::Committing;
        let given_up: Vec<u64> = drafts.give_up().iter().map(|(_, draft)| draft.number).collect();
        assert_eq!(given_up, [2, 4, 6, 1]);
        assert_eq!((drafts.numbers().collect::<Vec<_>>(), drafts.len()), (vec![5], 1));
        assert_eq!(drafts.find(5).map(|(index, draft)| (index, draft.pos)), Some((1, 10_000)));
    }
}
