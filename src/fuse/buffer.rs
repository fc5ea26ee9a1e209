//! Receive buffers: one to receive into, and spare ones for requests that go on as tasks.
//!
//! A write that is carried out at once is read where it was received. One that must wait keeps its
//! buffer, and receiving goes on with another: the data is never copied.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::abi::{IN_HEADER, WRITE_IN};

const PAGE: usize = 4096;
/// Spare buffers that are kept; more are freed.
const SPARE: usize = 16;

/// A buffer in which the data of a write begins on a page.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(size: usize) -> Self {
        let bytes = vec![0; size + PAGE];
        let data = bytes.as_ptr().addr() + IN_HEADER + WRITE_IN;
        let start = data.next_multiple_of(PAGE) - data;
        Self { bytes, start }
    }

    /// Where to receive into.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// The first bytes of what was received.
    pub fn message(&self, length: usize) -> &[u8] {
        let message = &self.bytes[self.start..];
        &message[..length.min(message.len())]
    }
}

/// Where buffers come from and go back to.
pub struct Pool {
    size: usize,
    spare: Mutex<Vec<Buffer>>,
}

impl Pool {
    /// Buffers for requests of up to `size` bytes.
    pub fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, spare: Mutex::default() })
    }

    pub fn take(&self) -> Buffer {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Buffer::new(self.size))
    }

    pub fn put_back(&self, buffer: Buffer) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(buffer);
        }
    }
}

/// The data of a write.
pub struct Payload<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) length: usize,
}

impl Payload<'_> {
    /// The data where it was received; gone when the handler returns.
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer.space_after_arguments()[..self.length]
    }

    /// The data to keep, without copying it.
    pub fn keep(self) -> Bytes {
        let taken = std::mem::replace(self.buffer, self.pool.take());
        let kept = Kept { buffer: Some(taken), pool: Arc::clone(self.pool), length: self.length };
        Bytes::from_owner(kept)
    }
}

impl Buffer {
    fn space_after_arguments(&self) -> &[u8] {
        &self.bytes[self.start + IN_HEADER + WRITE_IN..]
    }
}

/// A buffer that went with its write and comes back when that is done.
struct Kept {
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
    length: usize,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_ref();
        buffer.map_or(&[], |buffer| &buffer.space_after_arguments()[..self.length])
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.put_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(pool: &Arc<Pool>, data: &[u8]) -> Buffer {
        let mut buffer = pool.take();
        buffer.space()[IN_HEADER + WRITE_IN..][..data.len()].copy_from_slice(data);
        buffer
    }

    #[test]
    fn the_data_of_a_write_begins_on_a_page() {
        let pool = Pool::new(8192);
        let mut buffer = pool.take();
        let payload = Payload { buffer: &mut buffer, pool: &pool, length: 1 };
        assert_eq!(payload.as_slice().as_ptr().addr() % PAGE, 0);
    }

    #[test]
    fn data_that_is_kept_stays_where_it_was_received() {
        let pool = Pool::new(8192);
        let mut buffer = received(&pool, b"data");
        let payload = Payload { buffer: &mut buffer, pool: &pool, length: 4 };
        let place = payload.as_slice().as_ptr();
        let kept = payload.keep();
        buffer.space().fill(0xFF);
        assert_eq!(kept.as_ptr(), place);
        assert_eq!(kept, "data");
    }

    #[test]
    fn a_kept_buffer_comes_back_when_the_last_part_of_it_is_dropped() {
        let pool = Pool::new(8192);
        let mut buffer = received(&pool, b"data");
        let kept = Payload { buffer: &mut buffer, pool: &pool, length: 4 }.keep();
        let part = kept.slice(1..3);
        drop(kept);
        assert!(pool.spare.lock().unwrap().is_empty());
        drop(part);
        assert_eq!(pool.spare.lock().unwrap().len(), 1);
    }
}
