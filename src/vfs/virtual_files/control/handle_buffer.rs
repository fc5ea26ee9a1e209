//! The content of a `.control` handle: requests and replies one after the other, read by offset.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use nix::errno::Errno;

use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};
use crate::vfs::control_protocol::errno_to_byte;

/// The longest request: the tools send some 10 000 paths in one.
const MAX_REQUEST: usize = 64 << 20;
/// An opcode and a length.
const HEADER: usize = 8;
/// Once the content is longer than this, the part that was read is dropped in steps of `DROPPED`.
const KEPT: usize = 2 << 20;
const DROPPED: usize = 1 << 20;

/// A request before its body is decoded.
#[derive(Debug, PartialEq, Eq)]
pub struct RawRequest {
    pub op: u32,
    pub body: Bytes,
}

pub struct HandleBuffer {
    budget: Arc<Budget>,
    /// Memory of the content and the pending request.
    memory: Option<Reserved>,
    /// The offset at which `content` starts.
    start: u64,
    content: BytesMut,
    /// An incomplete request.
    pending: BytesMut,
}

/// The state of a request after more of it was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// There is more to come.
    Incomplete,
    Complete(RawRequest),
    /// More was written than the length in the request.
    Malformed,
}

/// Memory is reserved in steps; up to one step stays reserved when less is needed.
const STEP: usize = 16 << 10;

impl HandleBuffer {
    pub fn new(budget: Arc<Budget>) -> Self {
        let (content, pending) = (BytesMut::new(), BytesMut::new());
        Self { budget, memory: None, start: 0, content, pending }
    }

    /// Adjusts the reservation to the content plus this many bytes.
    fn reserve_for(&mut self, more: usize) -> Result<()> {
        let needed = (self.content.len() + more).next_multiple_of(STEP);
        let held = self.memory.as_ref().map_or(0, Reserved::bytes);
        if needed > held {
            let memory = self.budget.try_reserve(needed - held);
            // A reservation is capped at the whole budget, and may then be smaller than needed.
            let memory = memory
                .filter(|memory| memory.bytes() >= needed - held)
                .ok_or(Error::NoMemory(needed - held))?;
            match &mut self.memory {
                Some(held) => held.merge(memory),
                none => *none = Some(memory),
            }
        } else if let Some(memory) = &mut self.memory {
            drop(memory.split(held - needed));
        }
        Ok(())
    }

    /// Adds to a request. If there is no memory for it, the whole request is dropped.
    pub fn push_request(&mut self, bytes: &[u8]) -> Result<Parsed> {
        // Twice: the request is part of the content and is decoded as well.
        if let Err(error) = self.reserve_for(2 * (self.pending.len() + bytes.len())) {
            self.pending = BytesMut::new();
            return Err(error);
        }
        self.pending.extend_from_slice(bytes);
        let mut header = &self.pending[..];
        let (Ok(op), Ok(length)) = (header.try_get_u32(), header.try_get_u32()) else {
            return Ok(Parsed::Incomplete);
        };
        let length = length as usize;
        if length > MAX_REQUEST {
            self.pending = BytesMut::new();
            return Err(Error::TooLarge);
        }
        if header.len() < length {
            return Ok(Parsed::Incomplete);
        }
        let is_malformed = header.len() > length;
        self.content.extend_from_slice(&self.pending);
        let body = self.pending.split().freeze().slice(HEADER..);
        Ok(if is_malformed { Parsed::Malformed } else { Parsed::Complete(RawRequest { op, body }) })
    }

    /// Splits off the memory of a complete request, for as long as it is processed.
    pub fn split_memory(&mut self, request: &RawRequest) -> Option<Reserved> {
        self.memory.as_mut().and_then(|memory| memory.split(request.body.len()))
    }

    /// Appends to the reply or, if there is no memory, appends ENOMEM.
    pub fn push_reply(&mut self, bytes: &[u8]) {
        let reserved = self.reserve_for(2 * self.pending.len() + bytes.len());
        let no_memory = [errno_to_byte(Errno::ENOMEM)];
        self.content.extend_from_slice(if reserved.is_ok() { bytes } else { &no_memory });
    }

    /// Reads from the content. Empty at the end: there may be more later.
    pub fn read(&mut self, off: u64, len: usize) -> Result<Bytes> {
        let Some(from) = off.checked_sub(self.start) else {
            return Err(Error::damaged("reply", "this part was read before and dropped"));
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.content.len());
        let to = from.saturating_add(len).min(self.content.len());
        let bytes = Bytes::copy_from_slice(&self.content[from..to]);
        if self.content.len() > KEPT && from > DROPPED {
            // Copied: otherwise the dropped part would stay allocated along with the rest.
            self.content = BytesMut::from(&self.content[DROPPED..]);
            self.start += DROPPED as u64;
            // Cannot fail, since less memory is needed than before.
            let _ = self.reserve_for(2 * self.pending.len());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> HandleBuffer {
        HandleBuffer::new(Budget::new(16 << 20))
    }

    const REQUEST: &[u8] = &[0, 0, 3, 0xed, 0, 0, 0, 3, 1, 2, 3];

    #[test]
    fn a_request_may_come_in_several_writes() {
        let mut buffer = buffer();
        for byte in &REQUEST[..REQUEST.len() - 1] {
            assert_eq!(buffer.push_request(&[*byte]).unwrap(), Parsed::Incomplete);
        }
        let request = RawRequest { op: 1005, body: Bytes::from_static(&[1, 2, 3]) };
        assert_eq!(buffer.push_request(&[3]).unwrap(), Parsed::Complete(request));
    }

    #[test]
    fn the_reply_follows_the_request() {
        let mut buffer = buffer();
        buffer.push_request(REQUEST).unwrap();
        assert_eq!(buffer.read(REQUEST.len() as u64, 100).unwrap(), "");
        buffer.push_reply(b"fine");
        assert_eq!(buffer.read(REQUEST.len() as u64, 100).unwrap(), "fine");
        assert_eq!(buffer.read(0, 4).unwrap(), &REQUEST[..4]);
    }

    #[test]
    fn a_request_longer_than_its_length_is_malformed() {
        let mut buffer = buffer();
        assert_eq!(buffer.push_request(&[REQUEST, &[9]].concat()).unwrap(), Parsed::Malformed);
        // The next request is accepted.
        assert!(matches!(buffer.push_request(REQUEST).unwrap(), Parsed::Complete(_)));
    }

    #[test]
    fn a_request_that_is_too_long_is_refused() {
        let mut buffer = buffer();
        let refused = buffer.push_request(&[0, 0, 3, 0xec, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(refused, Err(Error::TooLarge)));
        assert!(matches!(buffer.push_request(REQUEST).unwrap(), Parsed::Complete(_)));
    }

    #[test]
    fn content_is_counted_and_refused_if_there_is_no_memory() {
        let budget = Budget::new(64 << 10);
        let mut buffer = HandleBuffer::new(Arc::clone(&budget));
        buffer.push_request(&[0, 0, 3, 0xec, 0, 0, 0xff, 0xff]).unwrap();
        let refused = buffer.push_request(&vec![0; 40 << 10]);
        assert!(matches!(refused, Err(Error::NoMemory(_))));
        assert!(matches!(buffer.push_request(REQUEST).unwrap(), Parsed::Complete(_)));
        buffer.push_reply(&vec![7; 100 << 10]);
        let end = REQUEST.len() as u64;
        assert_eq!(buffer.read(end, 100).unwrap(), [errno_to_byte(Errno::ENOMEM)].as_slice());
        assert_eq!(budget.used(), STEP);
        drop(buffer);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_request_is_counted_until_it_is_processed() {
        let budget = Budget::new(1 << 20);
        let mut buffer = HandleBuffer::new(Arc::clone(&budget));
        let body = vec![b'/'; 200 << 10];
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let parsed = buffer.push_request(&[&[0, 0, 3, 0xec][..], &length, &body].concat()).unwrap();
        let Parsed::Complete(request) = parsed else { panic!("{parsed:?}") };
        let memory = buffer.split_memory(&request);
        // Appending adjusts the reservation, and the handle may be closed.
        buffer.push_reply(b"begun");
        drop(buffer);
        assert!(budget.used() >= request.body.len(), "{}", budget.used());
        drop(memory);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn content_that_was_read_is_dropped() {
        let mut buffer = buffer();
        buffer.push_reply(&vec![7; KEPT + 1]);
        buffer.push_reply(b"end");
        assert_eq!(buffer.read(KEPT as u64 + 1, 9).unwrap(), "end");
        assert!(buffer.read(0, 1).is_err());
        assert_eq!(buffer.read(KEPT as u64 + 2, 9).unwrap(), "nd");
    }
}
