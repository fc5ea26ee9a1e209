//! Receive buffers: one to receive into, and spare ones for requests that continue as tasks.
//!
//! A write that completes at once is read from the buffer it was received in. A large write that
//! must wait keeps its buffer, and receiving continues with another: the data is not copied. A
//! small one is copied, since a buffer is as large as the largest request.
//!
//! Where requests are received into memory that outlives the process, that memory is received into
//! again once its request has a reply, so writes that wait are always copied from it.

use std::sync::Arc;

use bytes::Bytes;

use super::in_flight::RequestMemory;
use crate::fuse::protocol::abi::{IN_HEADER, WRITE_IN};
use crate::ledger::ReceiveSpace;
use crate::sync::{Mutex, MutexGuard};

const PAGE: usize = 4096;

/// A buffer in which the data of a write is page-aligned.
pub enum ReceiveBuffer {
    Own {
        bytes: Vec<u8>,
        start: usize,
    },
    /// In memory that outlives the process.
    Shared(ReceiveSpace),
}

impl ReceiveBuffer {
    fn new(size: usize) -> Self {
        let bytes = vec![0; size + PAGE];
        let data = bytes.as_ptr().addr() + IN_HEADER + WRITE_IN;
        let start = data.next_multiple_of(PAGE) - data;
        Self::Own { bytes, start }
    }

    /// A buffer with a copy of a message.
    pub fn copy_of(message: &[u8]) -> Self {
        let mut copy = Self::new(message.len());
        copy.space()[..message.len()].copy_from_slice(message);
        copy
    }

    /// The space to receive into.
    pub fn space(&mut self) -> &mut [u8] {
        match self {
            Self::Own { bytes, start } => &mut bytes[*start..],
            Self::Shared(space) => space.bytes_mut(),
        }
    }

    /// Returns the received message.
    pub fn message(&self, length: usize) -> &[u8] {
        let bytes = self.bytes();
        &bytes[..length.min(bytes.len())]
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own { bytes, start } => &bytes[*start..],
            Self::Shared(space) => space.bytes(),
        }
    }

    /// The memory of this process that it takes.
    fn size(&self) -> usize {
        match self {
            Self::Own { bytes, .. } => bytes.len(),
            Self::Shared(_) => 0,
        }
    }
}

/// Unused buffers, shared by all sessions.
pub struct SpareBuffers {
    /// Bytes to keep; more are freed.
    kept: usize,
    buffers: Mutex<Vec<ReceiveBuffer>>,
}

impl SpareBuffers {
    pub fn new(kept: usize) -> Self {
        Self { kept, buffers: Mutex::default() }
    }

    fn take(&self, size: usize) -> Option<ReceiveBuffer> {
        let mut buffers = self.lock();
        let found = buffers.iter().rposition(|buffer| buffer.size() == size + PAGE)?;
        Some(buffers.swap_remove(found))
    }

    fn put_back(&self, buffer: ReceiveBuffer) {
        let mut buffers = self.lock();
        let held: usize = buffers.iter().map(ReceiveBuffer::size).sum();
        if held + buffer.size() <= self.kept {
            buffers.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ReceiveBuffer>> {
        self.buffers.lock()
    }
}

/// Provides the buffers of one session.
pub struct BufferPool {
    size: usize,
    memory: Arc<RequestMemory>,
}

impl BufferPool {
    /// Buffers for requests of up to `size` bytes.
    pub fn new(size: usize, memory: &Arc<RequestMemory>) -> Arc<Self> {
        Arc::new(Self { size, memory: Arc::clone(memory) })
    }

    pub fn take(&self) -> ReceiveBuffer {
        self.memory.spare.take(self.size).unwrap_or_else(|| ReceiveBuffer::new(self.size))
    }

    pub fn put_back(&self, buffer: ReceiveBuffer) {
        if buffer.size() == self.size + PAGE {
            self.memory.spare.put_back(buffer);
        }
    }

    /// Splits off a message for a task, and returns its buffer and one to continue with: a large
    /// message stays where it is, a small one is copied.
    pub fn hand_over(
        &self,
        buffer: ReceiveBuffer,
        length: usize,
    ) -> (ReceiveBuffer, ReceiveBuffer) {
        if self.is_large(length) {
            return (buffer, self.take());
        }
        (ReceiveBuffer::copy_of(buffer.message(length)), buffer)
    }

    /// Whether a message is large enough to keep its buffer.
    fn is_large(&self, length: usize) -> bool {
        length >= self.size / 2
    }
}

/// The data of a write.
pub struct Payload<'a> {
    pub(super) buffer: &'a mut ReceiveBuffer,
    pub(super) pool: &'a Arc<BufferPool>,
    pub(super) length: usize,
}

impl Payload<'_> {
    /// Returns the data in the receive buffer; valid until the handler returns.
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer.space_after_arguments()[..self.length]
    }

    /// Takes the data to outlive the handler.
    pub fn keep(self) -> Bytes {
        if !self.pool.is_large(self.length) || matches!(self.buffer, ReceiveBuffer::Shared(_)) {
            return Bytes::copy_from_slice(self.as_slice());
        }
        let taken = std::mem::replace(self.buffer, self.pool.take());
        let kept =
            KeptBuffer { buffer: Some(taken), pool: Arc::clone(self.pool), length: self.length };
        Bytes::from_owner(kept)
    }
}

impl ReceiveBuffer {
    fn space_after_arguments(&self) -> &[u8] {
        &self.bytes()[IN_HEADER + WRITE_IN..]
    }
}

/// A buffer that is returned to the pool when its write completes.
struct KeptBuffer {
    buffer: Option<ReceiveBuffer>,
    pool: Arc<BufferPool>,
    length: usize,
}

impl AsRef<[u8]> for KeptBuffer {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_ref();
        buffer.map_or(&[], |buffer| &buffer.space_after_arguments()[..self.length])
    }
}

impl Drop for KeptBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.put_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 8192;
    const LARGE: usize = SIZE - IN_HEADER - WRITE_IN;

    fn pool() -> Arc<BufferPool> {
        BufferPool::new(SIZE, &RequestMemory::new(1 << 20, 1 << 20))
    }

    fn received(pool: &Arc<BufferPool>, data: &[u8]) -> ReceiveBuffer {
        let mut buffer = pool.take();
        buffer.space()[IN_HEADER + WRITE_IN..][..data.len()].copy_from_slice(data);
        buffer
    }

    #[test]
    fn the_data_of_a_write_begins_on_a_page() {
        let pool = pool();
        let mut buffer = pool.take();
        let payload = Payload { buffer: &mut buffer, pool: &pool, length: 1 };
        assert_eq!(payload.as_slice().as_ptr().addr() % PAGE, 0);
    }

    #[test]
    fn large_data_that_is_kept_is_not_copied() {
        let pool = pool();
        let mut buffer = received(&pool, &[7; LARGE]);
        let payload = Payload { buffer: &mut buffer, pool: &pool, length: LARGE };
        let place = payload.as_slice().as_ptr();
        let kept = payload.keep();
        buffer.space().fill(0xFF);
        assert_eq!(kept.as_ptr(), place);
        assert_eq!(kept, vec![7; LARGE]);
    }

    #[test]
    fn small_data_that_is_kept_holds_no_buffer() {
        let pool = pool();
        let mut buffer = received(&pool, b"data");
        let place = buffer.space().as_ptr();
        let kept = Payload { buffer: &mut buffer, pool: &pool, length: 4 }.keep();
        buffer.space().fill(0xFF);
        assert_eq!(kept, "data");
        assert_eq!(buffer.space().as_ptr(), place);
    }

    #[test]
    fn a_kept_buffer_is_returned_when_the_last_slice_of_it_is_dropped() {
        let pool = pool();
        let mut buffer = received(&pool, &[7; LARGE]);
        let kept = Payload { buffer: &mut buffer, pool: &pool, length: LARGE }.keep();
        let part = kept.slice(1..3);
        drop(kept);
        assert!(pool.memory.spare.lock().is_empty());
        drop(part);
        assert_eq!(pool.memory.spare.lock().len(), 1);
    }

    #[test]
    fn sessions_share_spare_buffers_up_to_the_limit() {
        let memory = RequestMemory::new(5 * (SIZE + PAGE), 1);
        let (one, other) = (BufferPool::new(SIZE, &memory), BufferPool::new(SIZE, &memory));
        let buffers: Vec<_> = (0..5).map(|_| one.take()).collect();
        for buffer in buffers {
            one.put_back(buffer);
        }
        assert_eq!(memory.spare.lock().len(), 2);
        other.take();
        assert_eq!(memory.spare.lock().len(), 1);
        assert!(BufferPool::new(2 * SIZE, &memory).memory.spare.take(2 * SIZE).is_none());
    }

    #[test]
    fn a_small_message_is_copied_whole() {
        let pool = pool();
        let (theirs, _) = pool.hand_over(received(&pool, b"data"), IN_HEADER + WRITE_IN + 4);
        assert!(theirs.message(IN_HEADER + WRITE_IN + 4).ends_with(b"data"));
        assert!(theirs.size() < SIZE);
    }
}
