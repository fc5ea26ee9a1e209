//! The index of the blocks of one volume on one disk, in about fifty bytes of memory per block.
//!
//! Entries are stored in one vector, so that a random one is found in one step. A hash table of
//! slot numbers finds an entry by its block, and a linked list keeps the order of use. Staged
//! blocks are in the table but not in the list: they cannot be evicted.
#![allow(
    clippy::cast_possible_truncation,
    reason = "slots have numbers of 32 bits; as many blocks would take 128 GiB of memory"
)]

use rand::RngExt;

use crate::chunk::BlockKey;
use crate::slice::SliceId;

const NONE: u32 = u32::MAX;

/// The blocks of a volume, when each was last used, and which are staged.
#[derive(Debug, Default)]
pub struct Index {
    slots: Vec<Slot>,
    /// Open addressing: slot numbers, or [`NONE`]. The length is a power of two, or zero.
    table: Vec<u32>,
    newest: u32,
    oldest: u32,
    staged: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub block: BlockKey,
    /// Seconds since 1970.
    pub atime: u32,
    pub staged: bool,
}

/// An entry in 32 bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    slice: u64,
    index: u32,
    size: u32,
    atime: u32,
    newer: u32,
    older: u32,
    staged: bool,
    /// The last scan that saw it.
    mark: u8,
}

impl Slot {
    fn block(&self) -> BlockKey {
        BlockKey { slice: SliceId(self.slice), index: self.index, size: self.size }
    }

    fn entry(&self) -> IndexEntry {
        IndexEntry { block: self.block(), atime: self.atime, staged: self.staged }
    }
}

impl Index {
    pub fn new() -> Self {
        Self { newest: NONE, oldest: NONE, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn evictable(&self) -> usize {
        self.slots.len() - self.staged as usize
    }

    pub fn find(&self, block: BlockKey) -> Option<IndexEntry> {
        self.find_marked(block).map(|(entry, _)| entry)
    }

    pub fn find_marked(&self, block: BlockKey) -> Option<(IndexEntry, u8)> {
        self.at(self.lookup(block)? as usize)
    }

    pub fn at(&self, slot: usize) -> Option<(IndexEntry, u8)> {
        self.slots.get(slot).map(|slot| (slot.entry(), slot.mark))
    }

    /// Adds or updates a block. Returns the previous entry.
    pub fn insert(&mut self, entry: IndexEntry, mark: u8) -> Option<IndexEntry> {
        if let Some(number) = self.lookup(entry.block) {
            let before = self.slots[number as usize].entry();
            self.set_staged(number, entry.staged);
            let slot = &mut self.slots[number as usize];
            slot.atime = slot.atime.max(entry.atime);
            slot.mark = mark;
            return Some(before);
        }
        self.reserve();
        let number = self.slots.len() as u32;
        let BlockKey { slice, index, size } = entry.block;
        self.slots.push(Slot {
            slice: slice.0,
            index,
            size,
            atime: entry.atime,
            newer: NONE,
            older: NONE,
            staged: entry.staged,
            mark,
        });
        let place = self.place(entry.block, NONE);
        self.table[place] = number;
        if entry.staged {
            self.staged += 1;
        } else {
            self.link(number);
        }
        None
    }

    /// Marks a block as used. Returns its entry if it is present.
    pub fn touch(&mut self, block: BlockKey, now: u32) -> Option<IndexEntry> {
        let number = self.lookup(block)?;
        self.slots[number as usize].atime = now;
        if !self.slots[number as usize].staged && self.newest != number {
            self.unlink(number);
            self.link(number);
        }
        Some(self.slots[number as usize].entry())
    }

    pub fn remove(&mut self, block: BlockKey) -> Option<IndexEntry> {
        let number = self.lookup(block)?;
        let entry = self.slots[number as usize].entry();
        if entry.staged {
            self.staged -= 1;
        } else {
            self.unlink(number);
        }
        let place = self.place(block, number);
        self.close_gap(place);
        self.swap_remove(number);
        Some(entry)
    }

    /// Returns the least recently used block.
    pub fn least_recent(&self) -> Option<IndexEntry> {
        self.slots.get(self.oldest as usize).map(Slot::entry)
    }

    /// Of two random blocks, returns the less recently used one.
    pub fn older_of_two(&self) -> Option<IndexEntry> {
        let (one, other) = (self.random()?, self.random()?);
        Some(if other.atime < one.atime { other } else { one })
    }

    /// Sorts the list by time of use after blocks were added in another order.
    pub fn reorder(&mut self) {
        let mut order: Vec<u32> = (0..self.slots.len() as u32).collect();
        order.retain(|number| !self.slots[*number as usize].staged);
        order.sort_by_key(|number| self.slots[*number as usize].atime);
        (self.newest, self.oldest) = (NONE, NONE);
        for number in order {
            self.link(number);
        }
    }

    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.table.capacity() * size_of::<u32>()
    }

    fn random(&self) -> Option<IndexEntry> {
        if self.evictable() == 0 {
            return None;
        }
        let start = rand::rng().random_range(0..self.slots.len());
        let (before, after) = self.slots.split_at(start);
        after.iter().chain(before).find(|slot| !slot.staged).map(Slot::entry)
    }

    fn lookup(&self, block: BlockKey) -> Option<u32> {
        if self.table.is_empty() {
            return None;
        }
        let mut place = self.home(block);
        loop {
            let number = self.table[place];
            if number == NONE || self.slots[number as usize].block() == block {
                return (number != NONE).then_some(number);
            }
            place = (place + 1) & (self.table.len() - 1);
        }
    }

    /// Returns the position in the table that holds `number`, probing from the block's home
    /// position.
    fn place(&self, block: BlockKey, number: u32) -> usize {
        let mut place = self.home(block);
        while self.table[place] != number {
            place = (place + 1) & (self.table.len() - 1);
        }
        place
    }

    fn home(&self, block: BlockKey) -> usize {
        let parts = (u64::from(block.index) << 32) | u64::from(block.size);
        let mut hash = block.slice.0 ^ parts.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash ^ (hash >> 31)) as usize & (self.table.len() - 1)
    }

    /// Makes room for one more entry. The table is at most three quarters full; the slots grow by a
    /// quarter.
    fn reserve(&mut self) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.slots.len() / 4 + 16);
        }
        if (self.slots.len() + 1) * 4 <= self.table.len() * 3 {
            return;
        }
        let length = (self.table.len() * 2).max(16);
        self.table = vec![NONE; length];
        for number in 0..self.slots.len() {
            let place = self.place(self.slots[number].block(), NONE);
            self.table[place] = number as u32;
        }
    }

    /// Empties a position of the table and moves up later entries that would no longer be found.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.table.len() - 1;
        let mut next = gap;
        loop {
            next = (next + 1) & mask;
            let number = self.table[next];
            if number == NONE {
                self.table[gap] = NONE;
                return;
            }
            let home = self.home(self.slots[number as usize].block());
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.table[gap] = number;
                gap = next;
            }
        }
    }

    /// Removes a slot that nothing refers to any more. The last slot gets its number.
    fn swap_remove(&mut self, number: u32) {
        let last = self.slots.len() as u32 - 1;
        if number != last {
            let place = self.place(self.slots[last as usize].block(), last);
            self.table[place] = number;
            let moved = self.slots[last as usize];
            if !moved.staged {
                self.relink(moved.newer, moved.older, number);
            }
        }
        self.slots.swap_remove(number as usize);
        if self.slots.len() * 2 < self.slots.capacity() {
            self.slots.shrink_to(self.slots.len() + self.slots.len() / 4 + 16);
        }
    }

    fn set_staged(&mut self, number: u32, staged: bool) {
        let slot = &mut self.slots[number as usize];
        if slot.staged == staged {
            return;
        }
        slot.staged = staged;
        if staged {
            self.staged += 1;
            self.unlink(number);
        } else {
            self.staged -= 1;
            self.link(number);
        }
    }

    fn link(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        (slot.newer, slot.older) = (NONE, self.newest);
        self.relink(NONE, self.newest, number);
    }

    fn unlink(&mut self, number: u32) {
        let Slot { newer, older, .. } = self.slots[number as usize];
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Makes the neighbours of a slot in the list refer to it.
    fn relink(&mut self, newer: u32, older: u32, number: u32) {
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = number,
            None => self.newest = number,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = number,
            None => self.oldest = number,
        }
    }
}

#[cfg(test)]
mod tests;
