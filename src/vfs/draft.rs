//! A draft: a slice that is being written.
//!
//! It grows at its end and may be changed in its last, incomplete block; the full blocks before are
//! on their way to the store already. Once frozen it never changes again.

use std::ops::Range;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::buffer::Buffer;
use crate::chunk::{Reserved, Upload};
use crate::meta::Timestamp;
use crate::meta::record::CHUNK_SIZE;

pub struct Draft {
    /// In the order of creation, among all drafts of the mount.
    pub number: u64,
    /// Where in the chunk it begins.
    pub pos: u32,
    pub len: u32,
    pub started: Instant,
    pub touched: Instant,
    /// When its last byte was written.
    pub mtime: Timestamp,
    /// Whether it makes the file longer.
    pub grows: bool,
    /// The draft that must be committed first, in another chunk.
    pub after: Option<u64>,
    pub stage: Stage,
    tail: Buffer,
    block_size: u32,
    /// To the one that uploads it, once there is something to upload. Not bounded, since every
    /// block in it is within the budget.
    carrier: Option<UnboundedSender<Block>>,
}

pub enum Stage {
    /// It takes writes.
    Open,
    /// It is being stored.
    Frozen,
    /// All its data is in the store.
    Stored(Upload),
    /// It is being made part of its file.
    Committing,
}

/// A block on its way to the one that uploads it.
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
            tail: Buffer::default(),
            block_size,
            carrier: None,
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    pub fn end(&self) -> u32 {
        self.pos + self.len
    }

    /// Whether a write at `pos` of the chunk can become part of it: from the begin of its last
    /// incomplete block to its end. So nothing has to be read, and there are no gaps.
    pub fn takes(&self, pos: u32) -> bool {
        self.is_open() && self.pos + self.full() <= pos && pos <= self.end()
    }

    /// Where it lies in the file, in the chunk of that number.
    pub fn range(&self, index: u32) -> Range<u64> {
        let start = u64::from(index) * CHUNK_SIZE + u64::from(self.pos);
        start..start + u64::from(self.len)
    }

    pub fn overlaps(&self, start: u32, end: u32) -> bool {
        self.pos < end && start < self.end()
    }

    /// How many bytes fit at `pos` into the block that it falls in.
    pub fn room(&self, pos: u32) -> usize {
        (self.block_size - self.at(pos)) as usize
    }

    /// How much memory must be reserved before `len` bytes can be put at `pos`.
    pub fn wants(&self, pos: u32, len: usize) -> Option<usize> {
        let end = self.at(pos) as usize + len;
        self.tail.wants(end, self.block_size as usize, self.full() > 0)
    }

    pub fn grow(&mut self, capacity: usize, reserved: Reserved) {
        self.tail.grow(capacity, reserved);
    }

    /// Puts bytes at `pos`, for which there is [`Draft::room`] and memory. If there is a first block
    /// to upload, whoever uploads it begins at the end of what is answered.
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

    /// Ends it: what is left goes to the store. Answers as [`Draft::put`].
    pub fn freeze(&mut self) -> Option<UnboundedReceiver<Block>> {
        let index = self.len / self.block_size;
        let blocks = if self.tail.len() > 0 { self.send(index) } else { None };
        self.stage = Stage::Frozen;
        self.carrier = None;
        blocks
    }

    /// Whether nothing can be appended to it.
    pub fn is_complete(&self) -> bool {
        u64::from(self.end()) == CHUNK_SIZE
    }

    /// Memory that comes back if it is frozen.
    pub fn held(&self) -> usize {
        self.tail.held()
    }

    /// Bytes in full blocks.
    fn full(&self) -> u32 {
        self.len / self.block_size * self.block_size
    }

    /// Where `pos` falls in the last block.
    fn at(&self, pos: u32) -> u32 {
        pos - self.pos - self.full()
    }

    fn send(&mut self, index: u32) -> Option<UnboundedReceiver<Block>> {
        let (bytes, reserved) = self.tail.take();
        let block = Block { index, bytes, reserved };
        if let Some(carrier) = &self.carrier {
            // Who does not listen any more has given up on the whole file.
            let _ = carrier.send(block);
            return None;
        }
        let (carrier, blocks) = unbounded_channel();
        let _ = carrier.send(block);
        self.carrier = Some(carrier);
        Some(blocks)
    }
}

/// A length within a chunk.
pub fn len32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Budget;

    fn write(draft: &mut Draft, pos: u32, bytes: &[u8]) -> Option<UnboundedReceiver<Block>> {
        if let Some(wanted) = draft.wants(pos, bytes.len()) {
            draft.grow(wanted, Budget::new(1 << 20).try_reserve(wanted).unwrap());
        }
        draft.put(pos, bytes)
    }

    #[test]
    fn a_write_joins_in_the_last_incomplete_block_or_at_the_end() {
        let mut draft = Draft::new(1, 100, 10);
        assert!(draft.takes(100) && !draft.takes(99) && !draft.takes(101));
        write(&mut draft, 100, &[1; 10]);
        write(&mut draft, 110, &[2; 4]);
        assert!(!draft.takes(109), "a full block is gone");
        assert!(draft.takes(110) && draft.takes(114) && !draft.takes(115));
        draft.freeze();
        assert!(!draft.takes(114));
    }

    #[test]
    fn blocks_leave_when_they_are_full_and_the_rest_when_it_is_frozen() {
        let mut draft = Draft::new(1, 5, 4);
        assert!(write(&mut draft, 5, b"abc").is_none());
        let mut blocks = write(&mut draft, 6, b"xyz").unwrap();
        assert_eq!(blocks.try_recv().unwrap().bytes, "axyz");
        assert!(write(&mut draft, 9, b"12").is_none());
        assert!(draft.freeze().is_none(), "there is someone who uploads it");
        let last = blocks.try_recv().unwrap();
        assert_eq!((last.index, last.bytes), (1, Bytes::from_static(b"12")));
        assert!(blocks.try_recv().is_err() && blocks.is_closed());
        assert_eq!((draft.len, draft.end(), draft.held()), (6, 11, 0));
    }
}
