//! Where messages lie in the memory: a page of its own for the header, then slots of three sizes.

/// Bytes of a page.
pub const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();
/// What the data of a write follows: the header of a request, and its arguments. A message begins
/// so many bytes before a page, so that the data begins on it.
const BEFORE_DATA: usize = 80;
/// More than any request of the kernel has.
const MAX_MESSAGE: usize = 16 << 20;
/// How much memory the slots that are received into take at most.
const LARGE_TOTAL: usize = 64 << 20;
/// Free slots of one size keep this much memory.
const KEPT: usize = 256 << 10;

/// The slots of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// The word where the first slot begins.
    start: usize,
    /// Bytes of a slot.
    stride: usize,
    /// Bytes before the message in its slot.
    lead: usize,
    pub slots: u32,
}

/// The sizes of slots; the last are those to receive into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub classes: [Class; 3],
    /// Words of the memory.
    pub words: usize,
}

impl Layout {
    /// Slots to receive into.
    pub const LARGE: usize = 2;

    /// For messages of up to `largest` bytes; `None` if no kernel sends such.
    pub fn new(largest: usize) -> Option<Self> {
        if !(PAGE..=MAX_MESSAGE).contains(&largest) {
            return None;
        }
        let large = largest.next_multiple_of(PAGE) + PAGE;
        let count = u32::try_from((LARGE_TOTAL / large).max(4)).ok()?;
        let mut words = PAGE / WORD;
        let classes = [(1 << 10, 0, 4096), (8 << 10, 0, 1024), (large, PAGE - BEFORE_DATA, count)];
        let classes = classes.map(|(stride, lead, slots)| {
            let class = Class { start: words, stride, lead, slots };
            words += stride / WORD * slots as usize;
            class
        });
        Some(Self { classes, words })
    }
}

impl Class {
    /// The first word of the message in a slot.
    pub fn message(&self, slot: u32) -> usize {
        self.start + (slot as usize * self.stride + self.lead) / WORD
    }

    /// Bytes of the longest message.
    pub fn capacity(&self) -> usize {
        self.stride - self.lead
    }

    /// The bytes of the memory that some slots lie in.
    pub fn bytes(&self, slots: std::ops::Range<u32>) -> std::ops::Range<u64> {
        let byte = |slot: u32| (self.start * WORD + slot as usize * self.stride) as u64;
        byte(slots.start)..byte(slots.end)
    }

    /// The first words of the pages of a slot, which begins on a page.
    pub fn pages(&self, slot: u32) -> impl Iterator<Item = usize> {
        let first = self.start + slot as usize * self.stride / WORD;
        (first..first + self.stride / WORD).step_by(PAGE / WORD)
    }

    /// How many free slots keep their memory.
    pub fn kept(&self) -> u32 {
        u32::try_from((KEPT / self.stride).max(1)).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_fill_the_memory() {
        for largest in [PAGE, 132 << 10, (1 << 20) + PAGE, (1 << 20) + 5000] {
            let layout = Layout::new(largest).unwrap();
            let mut end = (PAGE / WORD) as u64 * WORD as u64;
            for class in layout.classes {
                for slot in 0..class.slots {
                    let bytes = class.bytes(slot..slot + 1);
                    assert_eq!(bytes.start, end);
                    let message = (class.message(slot) * WORD) as u64;
                    assert!(message >= bytes.start);
                    assert_eq!(message + class.capacity() as u64, bytes.end);
                    end = bytes.end;
                }
            }
            assert_eq!(end, (layout.words * WORD) as u64);
            assert!(layout.classes[Layout::LARGE].capacity() >= largest);
        }
    }

    #[test]
    fn the_data_of_a_received_write_begins_on_a_page() {
        let layout = Layout::new(132 << 10).unwrap();
        let class = &layout.classes[Layout::LARGE];
        assert!((0..4).all(|slot| (class.message(slot) * WORD + BEFORE_DATA).is_multiple_of(PAGE)));
    }

    #[test]
    fn lengths_that_no_kernel_sends_have_no_layout() {
        for largest in [0, 100, MAX_MESSAGE + 1, usize::MAX] {
            assert_eq!(Layout::new(largest), None);
        }
    }
}
