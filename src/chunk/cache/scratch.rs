//! Buffers for what is read from disk, used again and again.
//!
//! Memory that comes fresh from the kernel costs more than the bytes that are read into it: each
//! page of it is faulted in and cleared. What is kept for the next read is bounded, and small
//! beside any budget.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::page;

/// Smaller ones the allocator hands out from memory that it has.
const SMALLEST: usize = 32 << 10;
/// Larger ones are whole blocks, which are kept elsewhere.
const LARGEST: usize = 2 << 20;
/// Bytes that are kept.
const KEPT: usize = 8 << 20;

static FREE: Mutex<Free> = Mutex::new(Free { buffers: Vec::new(), bytes: 0 });

struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A buffer of a wanted length, with anything in it.
pub struct Scratch {
    buffer: Vec<u8>,
    bytes: Range<usize>,
}

impl Scratch {
    pub fn new(length: usize) -> Self {
        let buffer = if (SMALLEST..=LARGEST).contains(&length) {
            // Of few sizes, so that they fit again.
            take(length.next_power_of_two() + page::slack(length))
        } else {
            vec![0; length + page::slack(length)]
        };
        let begin = if page::slack(length) > 0 { page::begin(&buffer) } else { 0 };
        Self { buffer, bytes: begin..begin + length }
    }

    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.bytes.clone()]
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.buffer[self.bytes.clone()]
    }

    /// A part of it; the buffer is free when the last of these bytes is dropped.
    pub fn freeze(self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }
}

impl AsRef<[u8]> for Scratch {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < SMALLEST {
            return;
        }
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + buffer.len() <= KEPT {
            free.bytes += buffer.len();
            free.buffers.push(buffer);
        }
    }
}

fn take(size: usize) -> Vec<u8> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    // The one that was used last is likely to be in the processor's cache.
    let found = free.buffers.iter().rposition(|buffer| buffer.len() == size);
    let found = found.map(|at| free.buffers.swap_remove(at));
    if found.is_some() {
        free.bytes -= size;
    }
    drop(free);
    found.unwrap_or_else(|| vec![0; size])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_as_long_as_asked_and_its_bytes_are_those_written() {
        for length in [0, 1, SMALLEST - 1, SMALLEST, SMALLEST + 1, LARGEST, LARGEST + 1] {
            let mut scratch = Scratch::new(length);
            assert_eq!(scratch.as_mut().len(), length);
            scratch.as_mut().fill(7);
            let bytes = scratch.freeze(length / 2..length);
            assert_eq!(bytes.len(), length - length / 2);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn bytes_that_are_still_held_are_never_written_over() {
        let mut first = Scratch::new(SMALLEST);
        first.as_mut().fill(1);
        let held = first.freeze(0..SMALLEST);
        for _ in 0..100 {
            let mut other = Scratch::new(SMALLEST);
            other.as_mut().fill(2);
        }
        assert!(held.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let many: Vec<Scratch> = (0..100).map(|_| Scratch::new(LARGEST)).collect();
        drop(many);
        assert!(FREE.lock().unwrap().bytes <= KEPT);
    }
}
