//! A buffer that is filled and then shared without a copy.

use std::ops::{Deref, DerefMut, Range};

use bytes::Bytes;

use super::pool::{POOL, zeroed};
use super::{SIZE, SMALLEST};

/// Larger buffers are not rounded up, since they may be held for long.
const ROUNDED_BELOW: usize = 2 << 20;

/// Bytes in memory from the pool, which returns there when the last reference is dropped.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Vec<u8>,
    /// The usable part of the memory.
    room: Range<usize>,
    len: usize,
}

impl Buffer {
    /// Creates an empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        if capacity < SMALLEST {
            return Self { memory: vec![0; capacity], room: 0..capacity, len: 0 };
        }
        let memory =
            if is_common(capacity) { POOL.take(capacity + SIZE) } else { vec![0; capacity + SIZE] };
        let begin = first_page(&memory);
        Self { memory, room: begin..begin + capacity, len: 0 }
    }

    /// Creates a buffer as [`Buffer::with_capacity`] does, or returns `None` if there is no memory.
    /// For sizes that come from outside.
    pub fn try_with_capacity(capacity: usize) -> Option<Self> {
        let rounded = if capacity < SMALLEST { capacity } else { capacity.checked_add(SIZE)? };
        let memory = if rounded > capacity && is_common(capacity) {
            POOL.try_take(rounded)?
        } else {
            zeroed(rounded)?
        };
        let begin = if rounded == capacity { 0 } else { first_page(&memory) };
        Some(Self { memory, room: begin..begin + capacity, len: 0 })
    }

    /// Creates a buffer as [`Buffer::exactly`] does, or returns `None` if there is no memory.
    pub fn try_exactly(len: usize) -> Option<Self> {
        let mut buffer = Self::try_with_capacity(len)?;
        buffer.len = len;
        Some(buffer)
    }

    /// Creates a buffer of `len` bytes with arbitrary content, to be overwritten. Not for
    /// long-lived buffers: it may hold twice the memory.
    pub fn scratch(len: usize) -> Self {
        // Rounded to few sizes, so that the memory can be reused.
        let is_rounded = (SMALLEST..=ROUNDED_BELOW).contains(&len);
        let capacity = if is_rounded { len.next_power_of_two() } else { len };
        let mut buffer = Self::with_capacity(capacity);
        buffer.len = len;
        buffer
    }

    /// Creates a buffer as [`Buffer::scratch`] does, without rounding up.
    pub fn exactly(len: usize) -> Self {
        let mut buffer = Self::with_capacity(len);
        buffer.len = len;
        buffer
    }

    pub fn capacity(&self) -> usize {
        self.room.len()
    }

    /// Appends bytes, reallocating if necessary.
    pub fn extend(&mut self, bytes: &[u8]) {
        let needed = self.len + bytes.len();
        if needed > self.capacity() {
            let mut larger = Self::with_capacity(needed.max(2 * self.capacity()));
            larger.append(self);
            *self = larger;
        }
        self.append(bytes);
    }

    /// Appends as [`Buffer::extend`] does, or returns `None` if there is no memory.
    pub fn try_extend(&mut self, bytes: &[u8]) -> Option<()> {
        let needed = self.len.checked_add(bytes.len())?;
        if needed > self.capacity() {
            let mut larger = Self::try_with_capacity(needed.max(2 * self.capacity()))?;
            larger.append(self);
            *self = larger;
        }
        self.append(bytes);
        Some(())
    }

    /// The caller has made room.
    fn append(&mut self, bytes: &[u8]) {
        let begin = self.room.start + self.len;
        self.memory[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Returns the bytes, to be shared. The memory is released when the last reference is dropped.
    pub fn freeze(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }

    fn range(&self) -> Range<usize> {
        self.room.start..self.room.start + self.len
    }
}

/// Returns the offset of the first page boundary.
fn first_page(memory: &[u8]) -> usize {
    memory.as_ptr().addr().next_multiple_of(SIZE) - memory.as_ptr().addr()
}

/// Whether other buffers are likely to have the same size, as those of blocks do.
fn is_common(capacity: usize) -> bool {
    capacity.is_power_of_two()
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.range()]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        &mut self.memory[range]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity() >= SMALLEST && is_common(self.capacity()) {
            POOL.put_back(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 8] =
        [0, 1, SMALLEST - 1, SMALLEST, SMALLEST + 1, ROUNDED_BELOW, ROUNDED_BELOW + 1, 4 << 20];

    fn is_at_a_page(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(SIZE)
    }

    #[test]
    fn bytes_are_those_appended_and_are_not_moved() {
        for length in LENGTHS {
            let mut buffer = Buffer::with_capacity(length);
            assert!(buffer.is_empty() && buffer.capacity() == length);
            buffer.extend(&vec![1; length / 2]);
            buffer.extend(&vec![2; length - length / 2]);
            assert_eq!((buffer.len(), buffer.capacity()), (length, length));
            assert!(length < SMALLEST || is_at_a_page(&buffer));
            let (place, expected) = (buffer.as_ptr(), buffer.to_vec());
            let bytes = buffer.freeze();
            assert!(bytes.is_empty() || bytes.as_ptr() == place);
            assert_eq!(bytes, expected);
            assert!(bytes[..length / 2].iter().all(|byte| *byte == 1));
            assert!(bytes[length / 2..].iter().all(|byte| *byte == 2));
        }
    }

    #[test]
    fn a_buffer_that_is_too_small_grows() {
        let mut buffer = Buffer::default();
        for n in 0..100_u8 {
            buffer.extend(&[n; 1000]);
        }
        assert_eq!(buffer.len(), 100_000);
        assert!(buffer.chunks(1000).zip(0..).all(|(part, n)| part.iter().all(|byte| *byte == n)));
    }

    #[test]
    fn a_scratch_buffer_has_the_requested_length() {
        for length in LENGTHS {
            let mut scratch = Buffer::scratch(length);
            assert_eq!(scratch.len(), length);
            scratch.fill(7);
            let bytes = scratch.freeze().slice(length / 2..);
            assert_eq!(bytes.len(), length - length / 2);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn bytes_that_are_still_referenced_are_never_overwritten() {
        let mut first = Buffer::scratch(SMALLEST);
        first.fill(1);
        let held = first.freeze().slice(10..SMALLEST);
        for _ in 0..100 {
            Buffer::scratch(SMALLEST).fill(2);
        }
        assert!(held.iter().all(|byte| *byte == 1));
    }
}
