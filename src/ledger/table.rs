//! A table of slots in shared memory.
//!
//! A slot is in use while its first word, the key, is not 0. The key is stored last and cleared
//! first, so that a process that dies at any point leaves only whole slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shared_memory::SharedMemory;
use crate::sync::Mutex;

/// Where a table lies, in words.
#[derive(Debug, Clone, Copy)]
pub struct TableLayout {
    /// The word with the number of slots that were ever used: the others are not even read, since
    /// that would take memory.
    pub used: usize,
    pub start: usize,
    pub slots: usize,
}

/// A table whose slots have `W` words.
pub struct Table<const W: usize> {
    memory: Arc<SharedMemory>,
    layout: TableLayout,
    free: Mutex<Vec<u32>>,
}

/// The number of a slot in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

impl<const W: usize> Table<W> {
    /// Opens a table, and finds its free slots.
    pub fn open(memory: &Arc<SharedMemory>, layout: TableLayout) -> Self {
        let table = Self { memory: Arc::clone(memory), layout, free: Mutex::default() };
        let is_free = |slot: &u32| table.word(Slot(*slot), 0).load(Ordering::Acquire) == 0;
        // The lowest are used first.
        let free: Vec<u32> = (0..table.used()).rev().filter(is_free).collect();
        *table.free.lock() = free;
        table
    }

    /// Stores a slot; `None` if the table is full. The key, `words[0]`, must not be 0.
    pub fn add(&self, words: [u64; W]) -> Option<Slot> {
        let slot = Slot(self.take_free()?);
        for (index, word) in words.iter().enumerate().skip(1) {
            self.word(slot, index).store(*word, Ordering::Relaxed);
        }
        self.word(slot, 0).store(words[0], Ordering::Release);
        Some(slot)
    }

    pub fn remove(&self, slot: Slot) {
        self.word(slot, 0).store(0, Ordering::Release);
        self.free.lock().push(slot.0);
    }

    /// Changes a word other than the key.
    pub fn set(&self, slot: Slot, index: usize, value: u64) {
        self.word(slot, index).store(value, Ordering::Release);
    }

    pub fn get(&self, slot: Slot) -> [u64; W] {
        std::array::from_fn(|index| self.word(slot, index).load(Ordering::Acquire))
    }

    /// Returns all slots in use.
    pub fn all(&self) -> Vec<(Slot, [u64; W])> {
        let slots = (0..self.used()).map(|slot| (Slot(slot), self.get(Slot(slot))));
        slots.filter(|(_, words)| words[0] != 0).collect()
    }

    fn take_free(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if let Some(slot) = free.pop() {
            return Some(slot);
        }
        let used = self.used();
        if used as usize >= self.layout.slots {
            return None;
        }
        self.memory.words()[self.layout.used].store(u64::from(used) + 1, Ordering::Release);
        Some(used)
    }

    /// Bounded, whatever the memory says.
    fn used(&self) -> u32 {
        let used = self.memory.words()[self.layout.used].load(Ordering::Acquire);
        u32::try_from(used.min(self.layout.slots as u64)).unwrap_or(0)
    }

    fn word(&self, slot: Slot, index: usize) -> &AtomicU64 {
        &self.memory.words()[self.layout.start + slot.0 as usize * W + index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: TableLayout = TableLayout { used: 0, start: 8, slots: 3 };

    fn memory() -> Arc<SharedMemory> {
        Arc::new(SharedMemory::create("test", 512).unwrap())
    }

    #[test]
    fn the_next_process_finds_the_slots_in_use_and_reuses_the_others() {
        let memory = memory();
        let table = Table::<2>::open(&memory, LAYOUT);
        let one = table.add([1, 10]).unwrap();
        let two = table.add([2, 20]).unwrap();
        table.remove(one);
        table.set(two, 1, 21);
        let next = Table::<2>::open(&memory, LAYOUT);
        assert_eq!(next.all(), [(two, [2, 21])]);
        assert_eq!(next.add([3, 30]), Some(one));
        assert!(next.add([4, 40]).is_some());
        assert_eq!(next.add([5, 50]), None, "it is full");
        assert_eq!(next.all().len(), 3);
    }

    #[test]
    fn every_prefix_of_stores_leaves_only_whole_slots() {
        // The stores of one `add` in their order, as a process that dies may leave them.
        let stores = [(0, 1), (9, 10), (8, 1)];
        for made in 0..=stores.len() {
            let memory = memory();
            for (word, value) in &stores[..made] {
                memory.words()[*word].store(*value, Ordering::Relaxed);
            }
            let table = Table::<2>::open(&memory, LAYOUT);
            let found: Vec<[u64; 2]> = table.all().into_iter().map(|(_, words)| words).collect();
            let expected = if made == stores.len() { vec![[1, 10]] } else { Vec::new() };
            assert_eq!(found, expected, "{made}");
            assert!(table.add([7, 7]).is_some());
        }
    }

    #[test]
    fn a_damaged_count_of_slots_is_bounded() {
        let memory = memory();
        memory.words()[0].store(u64::MAX, Ordering::Relaxed);
        let table = Table::<2>::open(&memory, LAYOUT);
        assert!(table.all().is_empty());
        assert!((0..3).all(|n| table.add([n + 1, 0]).is_some()));
        assert!(table.add([9, 0]).is_none());
    }
}
