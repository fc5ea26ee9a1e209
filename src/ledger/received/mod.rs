//! Requests that were received and have no reply yet, in memory that outlives the process.
//!
//! For kernels that cannot send a request again: the next process finds its bytes here. Requests
//! are received straight into this memory. A message begins with its length, which the kernel
//! writes with the rest and which is 0 in a free slot, so there is no point at which a process can
//! die and lose a message. One that has to wait is copied into a slot of about its size, if it is
//! small: the copy gets its length last, and only then the original is cleared. So a message may be
//! found twice, which its number tells.

mod layout;

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};

use super::fault;
use super::shared_memory::SharedMemory;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use layout::Layout;

const MAGIC: u64 = u64::from_be_bytes(*b"JFSRECV\0");
const VERSION: u64 = 1;

/// Words of the header.
mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// Bytes of the longest message.
    pub const LARGEST: usize = 2;
}

const WORD: usize = size_of::<u64>();
/// Bytes of the shortest message.
const MIN_MESSAGE: usize = 40;

/// The received requests of one mount.
pub struct ReceivedRequests {
    memory: SharedMemory,
    layout: Layout,
    state: Mutex<State>,
}

struct State {
    classes: [FreeSlots; 3],
    /// Another process owns the memory: nothing is stored any more.
    has_left: bool,
}

struct FreeSlots {
    free: BTreeSet<u32>,
    /// The slots from this one on take no memory.
    touched: u32,
    /// The most that were in use since memory was given back.
    peak: u32,
}

/// Memory to receive a message into. It belongs to its holder alone.
pub struct ReceiveSpace {
    owner: Arc<ReceivedRequests>,
    slot: u32,
}

/// A slot with a message. It stays until it is [freed](ReceivedRequests::free).
#[derive(Debug, PartialEq, Eq)]
pub struct MessageSlot {
    class: usize,
    slot: u32,
}

/// A message that an earlier process received.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundMessage {
    /// Its number.
    pub unique: u64,
    pub slot: MessageSlot,
}

impl ReceivedRequests {
    /// Creates memory for messages of up to `largest` bytes.
    pub fn create(largest: usize) -> Result<Arc<Self>> {
        let layout = layout_for(largest)?;
        let memory =
            SharedMemory::create("jfs-received", layout.words).map_err(|error| fault(&error))?;
        let store = |word: usize, value| memory.words()[word].store(value, Ordering::Relaxed);
        store(header::VERSION, VERSION);
        store(header::LARGEST, largest as u64);
        store(header::MAGIC, MAGIC);
        let classes = layout.classes.map(|class| FreeSlots {
            free: (0..class.slots).collect(),
            touched: 0,
            peak: 0,
        });
        let state = Mutex::new(State { classes, has_left: false });
        Ok(Arc::new(Self { memory, layout, state }))
    }

    /// Takes the memory of an earlier process over, which has ended. Returns the messages in it.
    pub fn adopt(file: OwnedFd, largest: usize) -> Result<(Arc<Self>, Vec<FoundMessage>)> {
        let layout = layout_for(largest)?;
        let memory = SharedMemory::open(file, layout.words).map_err(|error| fault(&error))?;
        let word = |index: usize| memory.words()[index].load(Ordering::Acquire);
        let found = (word(header::MAGIC), word(header::VERSION), word(header::LARGEST));
        if found != (MAGIC, VERSION, largest as u64) {
            return Err(Error::Refused(format!(
                "the received requests of the mount have version {} for {} bytes, and this \
                 program reads {VERSION} for {largest}",
                found.1, found.2
            )));
        }
        let mut messages = Vec::new();
        let mut uniques = HashSet::new();
        let mut classes = Vec::new();
        for (class, slots) in layout.classes.iter().enumerate() {
            let mut free = BTreeSet::new();
            for slot in 0..slots.slots {
                // Not through the mapping, which would take memory for every slot.
                let first =
                    memory.read_words(slots.message(slot)).map_err(|error| fault(&error))?;
                let [head, unique] = first;
                // The copy of a message comes before the original.
                if is_message(head, slots.capacity()) && uniques.insert(unique) {
                    messages.push(FoundMessage { unique, slot: MessageSlot { class, slot } });
                    continue;
                }
                if head != 0 {
                    memory.words()[slots.message(slot)].store(0, Ordering::Release);
                }
                free.insert(slot);
            }
            classes.push(FreeSlots { free, touched: slots.slots, peak: slots.slots });
        }
        // In the order in which they were sent.
        messages.sort_by_key(|message| message.unique);
        let Ok(classes) = <[FreeSlots; 3]>::try_from(classes) else {
            return Err(Error::Refused("the received requests have no such layout".to_owned()));
        };
        let state = Mutex::new(State { classes, has_left: false });
        let adopted = Arc::new(Self { memory, layout, state });
        Ok((adopted, messages))
    }

    /// Returns memory to receive into; `None` if messages without a reply take all of it.
    pub fn space(self: &Arc<Self>) -> Option<ReceiveSpace> {
        let slot = self.take(Layout::LARGE)?;
        let class = &self.layout.classes[Layout::LARGE];
        // The kernel must find every page: it would fail the request if one were missing.
        for word in class.pages(slot) {
            self.memory.words()[word].store(0, Ordering::Relaxed);
        }
        let mut space = ReceiveSpace { owner: Arc::clone(self), slot };
        space.clear();
        Some(space)
    }

    /// Keeps the message in `space`, which has this length: as a copy if it is small, and then the
    /// space is returned, empty.
    pub fn keep(
        &self,
        mut space: ReceiveSpace,
        length: usize,
    ) -> (MessageSlot, Option<ReceiveSpace>) {
        for class in 0..Layout::LARGE {
            if self.layout.classes[class].capacity() < length {
                continue;
            }
            if let Some(slot) = self.take(class) {
                self.copy(space.message(length), self.layout.classes[class].message(slot));
                space.clear();
                return (MessageSlot { class, slot }, Some(space));
            }
        }
        (space.into_slot(), None)
    }

    /// Returns the bytes of a message.
    pub fn message(&self, slot: &MessageSlot) -> Vec<u8> {
        let class = &self.layout.classes[slot.class];
        let start = class.message(slot.slot);
        let length = length(self.word(start).load(Ordering::Acquire)).min(class.capacity());
        let words = &self.memory.words()[start..start + length.div_ceil(WORD)];
        let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        bytes.take(length).collect()
    }

    /// Frees a slot whose message has its reply.
    #[allow(clippy::needless_pass_by_value, reason = "the caller must not use the slot any more")]
    pub fn free(&self, slot: MessageSlot) {
        let mut state = self.state.lock();
        if state.has_left {
            return;
        }
        let class = &self.layout.classes[slot.class];
        self.word(class.message(slot.slot)).store(0, Ordering::Release);
        let slots = &mut state.classes[slot.class];
        slots.free.insert(slot.slot);
        let used = slots.used(class.slots);
        if used <= 1 && slots.peak > class.kept() {
            self.release_memory(slot.class, slots);
            slots.peak = used;
        }
    }

    /// Stores nothing from now on: the next process owns the memory.
    pub fn leave(&self) {
        self.state.lock().has_left = true;
    }

    /// Whether a message of this length is kept as a copy, if there is room.
    pub fn is_small(&self, length: usize) -> bool {
        length <= self.layout.classes[Layout::LARGE - 1].capacity()
    }

    /// Whether a message lies where it was received.
    pub fn is_space(&self, slot: &MessageSlot) -> bool {
        slot.class == Layout::LARGE
    }

    /// Bytes of memory that receiving into one space takes.
    pub fn space_size(&self) -> usize {
        self.layout.classes[Layout::LARGE].capacity()
    }

    fn take(&self, class: usize) -> Option<u32> {
        let mut state = self.state.lock();
        if state.has_left {
            return None;
        }
        let slots = &mut state.classes[class];
        // The lowest, so that the others need no memory.
        let slot = slots.free.pop_first()?;
        slots.touched = slots.touched.max(slot + 1);
        slots.peak = slots.peak.max(slots.used(self.layout.classes[class].slots));
        Some(slot)
    }

    /// Gives the memory of free slots back, except for the first ones.
    fn release_memory(&self, class: usize, slots: &mut FreeSlots) {
        let class = &self.layout.classes[class];
        let (kept, touched) = (class.kept(), slots.touched);
        let used: Vec<u32> = (kept..touched).filter(|slot| !slots.free.contains(slot)).collect();
        let mut from = kept;
        for end in used.iter().copied().chain([touched]) {
            let bytes = class.bytes(from..end.max(from));
            if !bytes.is_empty() {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // It is only memory; if this fails, it stays taken.
                let _ = fallocate(&self.memory, punch, bytes.start, bytes.end - bytes.start);
            }
            from = end + 1;
        }
        slots.touched = used.last().map_or(kept, |last| last + 1);
    }

    /// Copies a message into a free slot, its first word last.
    fn copy(&self, message: &[u8], to: usize) {
        let (first, rest) = message.split_at(WORD.min(message.len()));
        for (index, bytes) in rest.chunks(WORD).enumerate() {
            self.word(to + 1 + index).store(to_word(bytes), Ordering::Relaxed);
        }
        self.word(to).store(to_word(first), Ordering::Release);
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.memory.words()[index]
    }
}

impl FreeSlots {
    fn used(&self, slots: u32) -> u32 {
        slots - u32::try_from(self.free.len()).unwrap_or(slots)
    }
}

impl AsFd for ReceivedRequests {
    /// The memory, for a keeper and for the next owner.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl std::fmt::Debug for ReceivedRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceivedRequests").finish_non_exhaustive()
    }
}

impl ReceiveSpace {
    /// The space to receive into. What is received is found by the next process, until it is
    /// [cleared](ReceiveSpace::clear).
    #[allow(unsafe_code, reason = "the kernel writes into shared memory")]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (pointer, length) = self.place();
        // SAFETY: as in `bytes`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(pointer, length) }
    }

    /// The received message and what follows it.
    #[allow(unsafe_code, reason = "reading shared memory")]
    pub fn bytes(&self) -> &[u8] {
        let (pointer, length) = self.place();
        // SAFETY: the slot is within the mapping, which lives as long as its owner. It is not among
        // the free ones, so in this process nobody else has it; the process before has ended, and a
        // keeper does not map it. After `leave`, nobody receives.
        unsafe { std::slice::from_raw_parts(pointer, length) }
    }

    /// The message that was received, of this length.
    pub fn message(&self, length: usize) -> &[u8] {
        let bytes = self.bytes();
        &bytes[..length.min(bytes.len())]
    }

    /// Makes the space empty: its message has its reply, or a copy.
    pub fn clear(&mut self) {
        let state = self.owner.state.lock();
        if state.has_left {
            return;
        }
        let word = self.owner.layout.classes[Layout::LARGE].message(self.slot);
        self.owner.word(word).store(0, Ordering::Release);
    }

    /// Gives the space back.
    pub fn free(self) {
        let owner = Arc::clone(&self.owner);
        owner.free(self.into_slot());
    }

    fn into_slot(self) -> MessageSlot {
        MessageSlot { class: Layout::LARGE, slot: self.slot }
    }

    fn place(&self) -> (*mut u8, usize) {
        let class = &self.owner.layout.classes[Layout::LARGE];
        (self.owner.memory.pointer(class.message(self.slot)), class.capacity())
    }
}

fn layout_for(largest: usize) -> Result<Layout> {
    Layout::new(largest)
        .ok_or_else(|| Error::Refused(format!("requests of {largest} bytes cannot be kept")))
}

/// Whether the first word of a slot is that of a message: its length is, and a number follows.
fn is_message(head: u64, capacity: usize) -> bool {
    (MIN_MESSAGE..=capacity).contains(&length(head))
}

/// The length of a message, by its first word: the first four bytes.
fn length(head: u64) -> usize {
    let [a, b, c, d, ..] = head.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]) as usize
}

fn to_word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests;
