//! The table of slices: 16 bytes for each, sorted by id.

use crate::meta::record::SliceSize;
use crate::slice::SliceId;

/// Why a slice is in the table; may be combined.
pub mod kind {
    /// A chunk of a file refers to it.
    pub const USED: u8 = 1;
    /// Compaction has replaced it, and it is kept as long as files in the trash.
    pub const DELAYED: u8 = 2;
    /// It has no references, and its objects wait to be deleted.
    pub const DEAD: u8 = 4;
}

/// Bits of [`TableEntry::state`] that count the blocks found; the kinds are above.
const FOUND_BITS: u32 = 24;
const FOUND_MASK: u32 = (1 << FOUND_BITS) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry {
    id: u64,
    size: u32,
    state: u32,
}

impl TableEntry {
    pub fn slice(&self) -> SliceSize {
        SliceSize { id: SliceId(self.id), size: self.size }
    }

    pub fn is(&self, kind: u8) -> bool {
        self.state >> FOUND_BITS & u32::from(kind) != 0
    }

    /// Counts a block whose object exists.
    pub fn add_found(&mut self) {
        if self.found() < FOUND_MASK {
            self.state += 1;
        }
    }

    /// Blocks whose objects exist.
    pub fn found(&self) -> u32 {
        self.state & FOUND_MASK
    }
}

/// The table is full.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

pub struct SliceTable {
    entries: Vec<TableEntry>,
    most: usize,
}

impl SliceTable {
    pub fn new(most: usize) -> Self {
        Self { entries: Vec::new(), most: most.max(1) }
    }

    /// Adds a slice. Must not be called after [`SliceTable::sort`].
    pub fn add(&mut self, slice: SliceSize, kind: u8) -> Result<(), Full> {
        let SliceSize { id: SliceId(id), size } = slice;
        if self.entries.len() >= self.most {
            self.sort();
            // Slices that many files share make a table that is sorted often: better full.
            if self.entries.len() > self.most / 4 * 3 {
                return Err(Full);
            }
        }
        self.entries.push(TableEntry { id, size, state: u32::from(kind) << FOUND_BITS });
        Ok(())
    }

    /// Sorts the table and merges equal slices.
    pub fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.id, entry.size));
        self.entries.dedup_by(|entry, kept| {
            let is_same = (entry.id, entry.size) == (kept.id, kept.size);
            if is_same {
                kept.state |= entry.state;
            }
            is_same
        });
    }

    /// The slices of this id: more than one only if metadata is damaged. The table must be sorted.
    pub fn of(&mut self, id: u64) -> &mut [TableEntry] {
        let start = self.entries.partition_point(|entry| entry.id < id);
        let count = self.entries[start..].iter().take_while(|entry| entry.id == id).count();
        &mut self.entries[start..start + count]
    }

    pub fn has(&self, slice: SliceSize, kind: u8) -> bool {
        let key = (slice.id.0, slice.size);
        let found = self.entries.binary_search_by_key(&key, |entry| (entry.id, entry.size));
        found.is_ok_and(|at| self.entries[at].is(kind))
    }

    pub fn iter(&self) -> impl Iterator<Item = &TableEntry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(id: u64, size: u32) -> SliceSize {
        SliceSize { id: SliceId(id), size }
    }

    #[test]
    fn an_entry_takes_16_bytes() {
        assert_eq!(size_of::<TableEntry>(), 16);
    }

    #[test]
    fn equal_slices_are_merged_and_keep_their_kinds() {
        let mut table = SliceTable::new(10);
        table.add(slice(5, 1), kind::USED).unwrap();
        table.add(slice(3, 1), kind::DELAYED).unwrap();
        table.add(slice(5, 1), kind::DEAD).unwrap();
        table.add(slice(5, 2), kind::USED).unwrap();
        table.sort();
        assert_eq!(table.iter().count(), 3);
        assert_eq!(table.of(5).len(), 2);
        assert_eq!(table.of(4).len(), 0);
        assert!(table.has(slice(5, 1), kind::USED) && table.has(slice(5, 1), kind::DEAD));
        assert!(!table.has(slice(3, 1), kind::USED) && !table.has(slice(3, 2), kind::DELAYED));
        table.of(3)[0].add_found();
        assert_eq!((table.of(3)[0].found(), table.of(3)[0].is(kind::DELAYED)), (1, true));
    }

    #[test]
    fn a_table_is_full_once_it_holds_too_many_different_slices() {
        let mut table = SliceTable::new(100);
        for _ in 0..1000 {
            table.add(slice(1, 1), kind::USED).unwrap();
        }
        let full = (1..=200).find(|id| table.add(slice(*id, 1), kind::USED) == Err(Full));
        assert!(full.is_some());
    }
}
