//! The write buffer of one block: contiguous, so that a full buffer is uploaded as it is.

use bytes::Bytes;

use crate::buffer_pool;
use crate::chunk::Reserved;

/// Small files fit into a buffer of this size. A buffer that outgrows it becomes a whole block.
const SMALL: usize = 64 << 10;

/// The bytes of a block that is being written, and the memory reserved for them.
#[derive(Default)]
pub struct BlockBuffer {
    bytes: buffer_pool::Buffer,
    reserved: Option<Reserved>,
}

impl BlockBuffer {
    /// Returns how much memory must be reserved before the buffer can hold `len` bytes, or `None`
    /// if it can already.
    ///
    /// Memory is reserved for what is allocated, not for what is filled. Most files are small and
    /// written in one call, so the first allocation fits exactly. A second write says little about
    /// how many will follow: up to [`SMALL`] the buffer stays small, since thousands of files may
    /// be dirty at once. A larger buffer is likely to fill its block, so it gets the whole block,
    /// and no byte is moved more than twice. A slice that has filled one block gets the next one
    /// whole.
    pub fn memory_needed(&self, len: usize, block_size: usize, streaming: bool) -> Option<usize> {
        let capacity = self.bytes.capacity();
        if len <= capacity {
            return None;
        }
        let whole = streaming || (!self.bytes.is_empty() && len > SMALL);
        let wanted = match (whole, self.bytes.is_empty()) {
            (true, _) => block_size,
            (false, true) => len,
            (false, false) => SMALL,
        };
        Some(wanted.clamp(len, block_size.max(len)))
    }

    /// Gives the buffer room for `capacity` bytes. `reserved` is the memory for them.
    pub fn grow(&mut self, capacity: usize, reserved: Reserved) {
        let mut bytes = buffer_pool::Buffer::with_capacity(capacity);
        bytes.extend(&self.bytes);
        *self = Self { bytes, reserved: Some(reserved) };
    }

    /// Puts bytes at `at`, which is within the buffer or at its end. There must be room for them.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let over = bytes.len().min(self.bytes.len() - at);
        self.bytes[at..at + over].copy_from_slice(&bytes[..over]);
        self.bytes.extend(&bytes[over..]);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Memory that is released once the buffer is stored.
    pub fn held(&self) -> usize {
        self.reserved.as_ref().map_or(0, Reserved::bytes)
    }

    /// Takes the bytes and their memory, and leaves an empty buffer.
    pub fn take(&mut self) -> (Bytes, Option<Reserved>) {
        let Self { bytes, reserved } = std::mem::take(self);
        (bytes.freeze(), reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Budget;

    const BLOCK: usize = 4 << 20;

    fn filled(len: usize) -> BlockBuffer {
        let mut buffer = BlockBuffer::default();
        buffer.grow(len, Budget::new(BLOCK).try_reserve(len).unwrap());
        buffer.put(0, &vec![1; len]);
        buffer
    }

    #[test]
    fn the_first_allocation_fits_and_later_ones_do_not_creep() {
        let empty = BlockBuffer::default();
        assert_eq!(empty.memory_needed(5000, BLOCK, false), Some(5000));
        assert_eq!(empty.memory_needed(BLOCK, BLOCK, false), Some(BLOCK));
        assert_eq!(empty.memory_needed(10, BLOCK, true), Some(BLOCK), "one block is full already");
        assert_eq!(filled(4096).memory_needed(4096, BLOCK, false), None);
        assert_eq!(filled(4096).memory_needed(4097, BLOCK, false), Some(SMALL));
        assert_eq!(filled(4096).memory_needed(SMALL + 1, BLOCK, false), Some(BLOCK));
        assert_eq!(filled(100).memory_needed(101, 1024, false), Some(1024), "blocks may be small");
    }

    #[test]
    fn bytes_are_laid_over_and_behind_what_is_there() {
        let mut buffer = filled(4);
        buffer.grow(8, Budget::new(BLOCK).try_reserve(8).unwrap());
        buffer.put(2, &[7, 8, 9]);
        let (bytes, reserved) = buffer.take();
        assert_eq!(bytes, [1, 1, 7, 8, 9].as_slice());
        assert!(reserved.is_some());
        assert_eq!((buffer.len(), buffer.held()), (0, 0));
    }
}
