//! A draft: a slice that is being written.
//!
//! It grows at its end and may be overwritten in its last, incomplete block. Full blocks are being
//! uploaded already. A frozen draft never changes again.

use std::ops::Range;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::block_buffer::BlockBuffer;
use crate::chunk::{Reserved, Upload};
use crate::meta::Timestamp;
use crate::meta::record::CHUNK_SIZE;

pub struct Draft {
    /// Drafts of a mount are numbered in the order of creation.
    pub number: u64,
    /// Offset in the chunk.
    pub pos: u32,
    pub len: u32,
    pub started: Instant,
    pub touched: Instant,
    /// When its last byte was written.
    pub mtime: Timestamp,
    /// Whether it makes the file longer.
    pub grows: bool,
    /// A draft in another chunk that must be committed first.
    pub after: Option<u64>,
    pub stage: Stage,
    tail: BlockBuffer,
    block_size: u32,
    /// To the upload task, once there is something to upload. Unbounded, since every block in it is
    /// within the budget.
    upload: Option<UnboundedSender<Block>>,
}

pub enum Stage {
    /// Accepts writes.
    Open,
    /// Accepts no more writes; its data is being uploaded.
    Frozen,
    /// All its data is in the store.
    Stored(Upload),
    /// The slice is being added to the file.
    Committing,
}

/// A block for the upload task.
pub struct Block {
    pub index: u32,
    pub bytes: Bytes,
    pub reserved: Option<Reserved>,
}

impl Draft {
    pub fn new(number: u64, pos: u32, block_size: u32) -> Self {
        let now = Instant::now();
        Self {
            number,
            pos,
            len: 0,
            started: now,
            touched: now,
            mtime: Timestamp::now(),
            grows: false,
            after: None,
            stage: Stage::Open,
            tail: BlockBuffer::default(),
            block_size,
            upload: None,
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    pub fn end(&self) -> u32 {
        self.pos + self.len
    }

    /// Whether a write at `pos` of the chunk can join this draft: anywhere from the start of its
    /// last incomplete block to its end. So nothing has to be read back, and there are no gaps.
    pub fn can_join(&self, pos: u32) -> bool {
        self.is_open() && self.pos + self.full() <= pos && pos <= self.end()
    }

    /// Returns the range in the file, given the chunk index.
    pub fn range(&self, index: u32) -> Range<u64> {
        let start = u64::from(index) * CHUNK_SIZE + u64::from(self.pos);
        start..start + u64::from(self.len)
    }

    pub fn overlaps(&self, start: u32, end: u32) -> bool {
        self.pos < end && start < self.end()
    }

    /// Returns how many bytes fit at `pos` into the block that contains it.
    pub fn room(&self, pos: u32) -> usize {
        (self.block_size - self.at(pos)) as usize
    }

    /// Returns how much memory must be reserved before `len` bytes can be put at `pos`.
    pub fn memory_needed(&self, pos: u32, len: usize) -> Option<usize> {
        let end = self.at(pos) as usize + len;
        self.tail.memory_needed(end, self.block_size as usize, self.full() > 0)
    }

    pub fn grow(&mut self, capacity: usize, reserved: Reserved) {
        self.tail.grow(capacity, reserved);
    }

    /// Puts bytes at `pos`, for which there is [`Draft::room`] and memory. Returns the receiving
    /// end for a new upload task if this fills the first block.
    pub fn put(&mut self, pos: u32, bytes: &[u8]) -> Option<UnboundedReceiver<Block>> {
        let at = self.at(pos);
        self.tail.put(at as usize, bytes);
        self.touched = Instant::now();
        self.mtime = Timestamp::now();
        let index = self.len / self.block_size;
        self.len = self.full() + len32(self.tail.len());
        let is_full = self.tail.len() == self.block_size as usize;
        if is_full { self.send(index) } else { None }
    }

    /// Stops accepting writes and sends the rest to the upload task. Returns the same as
    /// [`Draft::put`].
    pub fn freeze(&mut self) -> Option<UnboundedReceiver<Block>> {
        let index = self.len / self.block_size;
        let blocks = if self.tail.len() > 0 { self.send(index) } else { None };
        self.stage = Stage::Frozen;
        self.upload = None;
        blocks
    }

    /// Whether nothing can be appended to it.
    pub fn is_complete(&self) -> bool {
        u64::from(self.end()) == CHUNK_SIZE
    }

    /// Memory that is released once the draft is frozen and stored.
    pub fn held(&self) -> usize {
        self.tail.held()
    }

    /// Returns the number of bytes in full blocks.
    fn full(&self) -> u32 {
        self.len / self.block_size * self.block_size
    }

    /// Returns the offset of `pos` in the last block.
    fn at(&self, pos: u32) -> u32 {
        pos - self.pos - self.full()
    }

    fn send(&mut self, index: u32) -> Option<UnboundedReceiver<Block>> {
        let (bytes, reserved) = self.tail.take();
        let block = Block { index, bytes, reserved };
        if let Some(upload) = &self.upload {
            // The upload task has ended only if it gave up on the whole file.
            let _ = upload.send(block);
            return None;
        }
        let (upload, blocks) = unbounded_channel();
        let _ = upload.send(block);
        self.upload = Some(upload);
        Some(blocks)
    }
}

/// Converts a length within a chunk.
pub fn len32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Budget;

    fn write(draft: &mut Draft, pos: u32, bytes: &[u8]) -> Option<UnboundedReceiver<Block>> {
        if let Some(wanted) = draft.memory_needed(pos, bytes.len()) {
            draft.grow(wanted, Budget::new(1 << 20).try_reserve(wanted).unwrap());
        }
        draft.put(pos, bytes)
    }

    #[test]
    fn a_write_joins_in_the_last_incomplete_block_or_at_the_end() {
        let mut draft = Draft::new(1, 100, 10);
        assert!(draft.can_join(100) && !draft.can_join(99) && !draft.can_join(101));
        write(&mut draft, 100, &[1; 10]);
        write(&mut draft, 110, &[2; 4]);
        assert!(!draft.can_join(109), "a full block is sent");
        assert!(draft.can_join(110) && draft.can_join(114) && !draft.can_join(115));
        draft.freeze();
        assert!(!draft.can_join(114));
    }

    #[test]
    fn blocks_leave_when_they_are_full_and_the_rest_when_it_is_frozen() {
        let mut draft = Draft::new(1, 5, 4);
        assert!(write(&mut draft, 5, b"abc").is_none());
        let mut blocks = write(&mut draft, 6, b"xyz").unwrap();
        assert_eq!(blocks.try_recv().unwrap().bytes, "axyz");
        assert!(write(&mut draft, 9, b"12").is_none());
        assert!(draft.freeze().is_none(), "the upload task is running");
        let last = blocks.try_recv().unwrap();
        assert_eq!((last.index, last.bytes), (1, Bytes::from_static(b"12")));
        assert!(blocks.try_recv().is_err() && blocks.is_closed());
        assert_eq!((draft.len, draft.end(), draft.held()), (6, 11, 0));
    }
}
