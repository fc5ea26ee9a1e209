//! What of a file is written and not committed: drafts by chunk, in the order of their creation.
//!
//! Only the order of things; who uploads and commits is elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::draft::{Draft, Stage};
use crate::meta::Timestamp;
use crate::meta::chunk_range;
use crate::meta::record::CHUNK_SIZE;

/// How many drafts a write looks back for one to join. Those before are frozen: who writes at more
/// places at once than this gains little from joining.
const LOOK_BACK: usize = 4;

#[derive(Default)]
pub struct Pending {
    chunks: BTreeMap<u32, VecDeque<Draft>>,
    count: usize,
}

/// Where a write goes.
pub struct Landing {
    /// The draft that it joins.
    pub joins: Option<u64>,
    /// Drafts that have seen no write for too many others.
    pub stale: Vec<u64>,
}

impl Pending {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn push(&mut self, index: u32, draft: Draft) {
        self.chunks.entry(index).or_default().push_back(draft);
        self.count += 1;
    }

    pub fn remove(&mut self, number: u64) -> Option<Draft> {
        let (&index, drafts) =
            self.chunks.iter_mut().find(|(_, drafts)| drafts.iter().any(|d| d.number == number))?;
        let at = drafts.iter().position(|draft| draft.number == number)?;
        let draft = drafts.remove(at);
        if drafts.is_empty() {
            self.chunks.remove(&index);
        }
        self.count -= 1;
        draft
    }

    /// Removes all but the one that is being committed, with the chunks that they are in.
    pub fn give_up(&mut self) -> Vec<(u32, Draft)> {
        let mut given_up = Vec::new();
        for (index, drafts) in std::mem::take(&mut self.chunks) {
            for draft in drafts {
                if matches!(draft.stage, Stage::Committing) {
                    self.chunks.entry(index).or_default().push_back(draft);
                } else {
                    given_up.push((index, draft));
                }
            }
        }
        self.count -= given_up.len();
        given_up
    }

    pub fn find(&mut self, number: u64) -> Option<(u32, &mut Draft)> {
        self.chunks.iter_mut().find_map(|(index, drafts)| {
            drafts.iter_mut().find(|draft| draft.number == number).map(|draft| (*index, draft))
        })
    }

    pub fn has(&self, number: u64) -> bool {
        self.iter().any(|draft| draft.number == number)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Draft> {
        self.chunks.values().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Draft> {
        self.chunks.values_mut().flatten()
    }

    /// The newest draft that a write into `start..end` of a chunk may join without being seen out of
    /// order: none behind one that it overlaps.
    pub fn landing(&self, index: u32, start: u32, end: u32) -> Landing {
        let mut landing = Landing { joins: None, stale: Vec::new() };
        let Some(drafts) = self.chunks.get(&index) else { return landing };
        for (back, draft) in drafts.iter().rev().enumerate() {
            if draft.takes(start) {
                landing.joins = Some(draft.number);
                return landing;
            }
            if draft.is_open() && back >= LOOK_BACK {
                landing.stale.push(draft.number);
            }
            if draft.overlaps(start, end) {
                return landing;
            }
        }
        landing
    }

    /// Which draft the first one of chunk `index` has to wait for, if the file ends before that
    /// chunk: the last one that grows the chunk before. Otherwise the file could end behind bytes
    /// that were written and are not there.
    pub fn growth_before(&self, index: u32, length: u64) -> Option<u64> {
        if self.chunks.contains_key(&index) || u64::from(index) * CHUNK_SIZE < length {
            return None;
        }
        let (_, drafts) = self.chunks.range(..index).next_back()?;
        drafts.iter().rev().find(|draft| draft.grows).map(|draft| draft.number)
    }

    /// The drafts that must be committed before `range` of the file can be read: those over it, and
    /// all that these wait for.
    pub fn under(&self, range: Range<u64>) -> BTreeSet<u64> {
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

    /// Adds a draft, those before it in its chunk, and what they wait for in others.
    fn add_through(&self, index: u32, number: u64, wanted: &mut BTreeSet<u64>) {
        let drafts = self.chunks.get(&index).into_iter().flatten();
        for draft in drafts.take_while(|draft| draft.number <= number) {
            wanted.insert(draft.number);
            let home = draft.after.and_then(|after| {
                let holds = |drafts: &VecDeque<Draft>| drafts.iter().any(|d| d.number == after);
                self.chunks.iter().find(|(_, d)| holds(d)).map(|(index, _)| (*index, after))
            });
            if let Some((index, after)) = home {
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

    /// The oldest draft that can be committed now: stored, the first of its chunk, and waiting for
    /// no other.
    pub fn ready(&self) -> Option<u64> {
        let heads = self.chunks.values().filter_map(VecDeque::front);
        heads
            .filter(|draft| matches!(draft.stage, Stage::Stored(_)))
            .filter(|draft| draft.after.is_none_or(|after| !self.has(after)))
            .map(|draft| draft.number)
            .min()
    }

    /// The end of what is pending, from the file's begin.
    pub fn end(&self) -> u64 {
        let ends = self.chunks.iter().flat_map(|(index, drafts)| {
            let start = u64::from(*index) * CHUNK_SIZE;
            drafts.iter().map(move |draft| start + u64::from(draft.end()))
        });
        ends.max().unwrap_or(0)
    }

    /// When the last byte was written.
    pub fn mtime(&self) -> Option<Timestamp> {
        self.iter().max_by_key(|draft| draft.touched).map(|draft| draft.mtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Budget;

    const BLOCK: u32 = 1 << 10;

    fn add(pending: &mut Pending, number: u64, index: u32, pos: u32, len: usize) {
        let mut draft = Draft::new(number, pos, BLOCK);
        if len > 0 {
            draft.grow(1024, Budget::new(1024).try_reserve(1024).unwrap());
            draft.put(pos, &vec![1; len]);
        }
        draft.grows = true;
        pending.push(index, draft);
    }

    #[test]
    fn a_write_joins_an_older_draft_unless_a_newer_one_lies_in_between() {
        let mut pending = Pending::default();
        add(&mut pending, 1, 0, 0, 100);
        add(&mut pending, 2, 0, 500, 100);
        assert_eq!(pending.landing(0, 100, 200).joins, Some(1));
        assert_eq!(pending.landing(0, 100, 501).joins, None, "it would hide the newer one's bytes");
        assert_eq!(pending.landing(0, 550, 700).joins, Some(2));
        assert_eq!(pending.landing(0, 300, 400).joins, None);
        assert_eq!(pending.landing(1, 100, 200).joins, None, "another chunk");
    }

    #[test]
    fn drafts_that_others_have_overtaken_go() {
        let mut pending = Pending::default();
        for number in 0..6_u32 {
            add(&mut pending, u64::from(number), 0, number * 2000, 10);
        }
        let landing = pending.landing(0, 50_000, 50_010);
        assert_eq!((landing.joins, landing.stale), (None, vec![1, 0]));
    }

    #[test]
    fn a_new_last_chunk_waits_for_the_growth_of_the_one_before() {
        let mut pending = Pending::default();
        add(&mut pending, 1, 0, 0, 100);
        assert_eq!(pending.growth_before(3, 100), Some(1));
        assert_eq!(pending.growth_before(3, 4 * CHUNK_SIZE), None, "the file reaches further");
        add(&mut pending, 2, 3, 0, 100);
        assert_eq!(pending.growth_before(3, 100), None, "it is in line already");
    }

    #[test]
    fn what_lies_under_a_range_includes_all_that_is_waited_for() {
        let mut pending = Pending::default();
        add(&mut pending, 1, 0, 0, 100);
        add(&mut pending, 2, 0, 5000, 100);
        add(&mut pending, 3, 1, 0, 100);
        add(&mut pending, 4, 1, 5000, 100);
        pending.find(3).unwrap().1.after = Some(2);
        assert!(pending.under(200..300).is_empty());
        assert_eq!(pending.under(50..60), BTreeSet::from([1]));
        assert_eq!(pending.under(CHUNK_SIZE..CHUNK_SIZE + 1), BTreeSet::from([1, 2, 3]));
        assert!(pending.is_dirty(99..CHUNK_SIZE) && !pending.is_dirty(100..5000));
    }

    #[test]
    fn the_end_is_that_of_the_last_chunk_with_drafts() {
        let mut pending = Pending::default();
        assert_eq!(pending.end(), 0);
        add(&mut pending, 1, 2, 10, 100);
        add(&mut pending, 2, 0, 5000, 100);
        assert_eq!(pending.end(), 2 * CHUNK_SIZE + 110);
        pending.remove(1).unwrap();
        assert_eq!((pending.end(), pending.len()), (5100, 1));
    }
}
