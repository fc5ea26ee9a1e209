//! The fixed part of a message to the kernel, built on the stack.

use super::abi::OUT_HEADER;

/// The longest is the reply to statx.
const CAPACITY: usize = OUT_HEADER + 288;

/// A message header and the fixed fields after it.
#[derive(Debug)]
pub struct MessageHead {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl MessageHead {
    /// Creates a head with space for the header, which [`MessageHead::seal`] fills in.
    pub fn new() -> Self {
        Self { bytes: [0; CAPACITY], length: OUT_HEADER }
    }

    /// Creates a head without a header.
    pub fn empty() -> Self {
        Self { bytes: [0; CAPACITY], length: 0 }
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    pub fn zeros(&mut self, count: usize) {
        // Nothing is written twice, so the bytes are zero already.
        self.length = (self.length + count).min(CAPACITY);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(bytes);
            self.length = end;
        }
        debug_assert_eq!(self.length, end, "longer than any message of the protocol");
    }

    /// Fills in the header of a message with `rest` more bytes. `error` is a negative errno, 0, or
    /// the code of a notification.
    pub fn seal(&mut self, rest: usize, error: i32, unique: u64) -> &[u8] {
        // No message comes near 4 GiB; the kernel would reject the wrong length.
        let length = u32::try_from(self.length + rest).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&error.to_ne_bytes());
        self.bytes[8..OUT_HEADER].copy_from_slice(&unique.to_ne_bytes());
        self.as_bytes()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
