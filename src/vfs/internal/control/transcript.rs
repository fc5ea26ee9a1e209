//! What was said in a conversation: requests and answers behind each other, as a reader finds them
//! by offset.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use nix::errno::Errno;

use super::answer::errno_byte;
use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};

/// Bytes of a request at most: the tools send some 10 000 paths in one.
const LONGEST: usize = 64 << 20;
/// An opcode and a length.
const HEAD: usize = 8;
/// Once there is more than the first of these, what lies further back than the second was read
/// and goes.
const KEPT: usize = 2 << 20;
const BEHIND: usize = 1 << 20;

/// A request as it was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub op: u32,
    pub body: Bytes,
}

pub struct Transcript {
    memory: Arc<Budget>,
    /// What text and request lie in.
    room: Option<Reserved>,
    /// Where the text begins.
    start: u64,
    text: BytesMut,
    /// A request that is not complete.
    pending: BytesMut,
}

/// What a piece of a request comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// There is more to come.
    Part,
    Whole(Request),
    /// More was written than the request says it has.
    Broken,
}

/// Room is reserved in steps, and a little is left when there is less to say.
const STEP: usize = 16 << 10;

impl Transcript {
    pub fn new(memory: Arc<Budget>) -> Self {
        let (text, pending) = (BytesMut::new(), BytesMut::new());
        Self { memory, room: None, start: 0, text, pending }
    }

    /// Has room for so many bytes beside the text: more of it, or less.
    fn hold(&mut self, more: usize) -> Result<()> {
        let needed = (self.text.len() + more).next_multiple_of(STEP);
        let held = self.room.as_ref().map_or(0, Reserved::bytes);
        if needed > held {
            let room = self.memory.try_reserve(needed - held);
            // A reservation is never more than the whole budget, and then less than asked for.
            let room = room
                .filter(|room| room.bytes() >= needed - held)
                .ok_or(Error::NoMemory(needed - held))?;
            match &mut self.room {
                Some(held) => held.merge(room),
                none => *none = Some(room),
            }
        } else if let Some(room) = &mut self.room {
            drop(room.split(held - needed));
        }
        Ok(())
    }

    /// Takes a part of a request. If there is no memory for it, what came of it before goes as well.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<Heard> {
        // Twice: the request becomes part of the text, and is worked on.
        if let Err(error) = self.hold(2 * (self.pending.len() + bytes.len())) {
            self.pending = BytesMut::new();
            return Err(error);
        }
        self.pending.extend_from_slice(bytes);
        let mut head = &self.pending[..];
        let (Ok(op), Ok(length)) = (head.try_get_u32(), head.try_get_u32()) else {
            return Ok(Heard::Part);
        };
        let length = length as usize;
        if length > LONGEST {
            self.pending = BytesMut::new();
            return Err(Error::TooLarge);
        }
        if head.len() < length {
            return Ok(Heard::Part);
        }
        let is_broken = head.len() > length;
        self.text.extend_from_slice(&self.pending);
        let body = self.pending.split().freeze().slice(HEAD..);
        Ok(if is_broken { Heard::Broken } else { Heard::Whole(Request { op, body }) })
    }

    /// The room of a request that was heard, for as long as it is worked on.
    pub fn part_with(&mut self, request: &Request) -> Option<Reserved> {
        self.room.as_mut().and_then(|room| room.split(request.body.len()))
    }

    /// Says something, or, if there is no memory for it, that.
    pub fn say(&mut self, bytes: &[u8]) {
        let said = self.hold(2 * self.pending.len() + bytes.len());
        let no_memory = [errno_byte(Errno::ENOMEM)];
        self.text.extend_from_slice(if said.is_ok() { bytes } else { &no_memory });
    }

    /// None at the end: there may be more later.
    pub fn read(&mut self, off: u64, len: usize) -> Result<Bytes> {
        let Some(from) = off.checked_sub(self.start) else {
            return Err(Error::damaged("answer", "it was read to its end before"));
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.text.len());
        let to = from.saturating_add(len).min(self.text.len());
        let bytes = Bytes::copy_from_slice(&self.text[from..to]);
        if self.text.len() > KEPT && from > BEHIND {
            // A copy: what was read would stay in memory behind the rest.
            self.text = BytesMut::from(&self.text[BEHIND..]);
            self.start += BEHIND as u64;
            // It is less than before.
            let _ = self.hold(2 * self.pending.len());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript {
        Transcript::new(Budget::new(16 << 20))
    }

    const REQUEST: &[u8] = &[0, 0, 3, 0xed, 0, 0, 0, 3, 1, 2, 3];

    #[test]
    fn a_request_may_come_in_pieces() {
        let mut transcript = transcript();
        for byte in &REQUEST[..REQUEST.len() - 1] {
            assert_eq!(transcript.hear(&[*byte]).unwrap(), Heard::Part);
        }
        let request = Request { op: 1005, body: Bytes::from_static(&[1, 2, 3]) };
        assert_eq!(transcript.hear(&[3]).unwrap(), Heard::Whole(request));
    }

    #[test]
    fn the_answer_follows_the_request() {
        let mut transcript = transcript();
        transcript.hear(REQUEST).unwrap();
        assert_eq!(transcript.read(REQUEST.len() as u64, 100).unwrap(), "");
        transcript.say(b"fine");
        assert_eq!(transcript.read(REQUEST.len() as u64, 100).unwrap(), "fine");
        assert_eq!(transcript.read(0, 4).unwrap(), &REQUEST[..4]);
    }

    #[test]
    fn a_request_longer_than_it_says_is_broken() {
        let mut transcript = transcript();
        assert_eq!(transcript.hear(&[REQUEST, &[9]].concat()).unwrap(), Heard::Broken);
        // The next one is heard.
        assert!(matches!(transcript.hear(REQUEST).unwrap(), Heard::Whole(_)));
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let mut transcript = transcript();
        let refused = transcript.hear(&[0, 0, 3, 0xec, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(refused, Err(Error::TooLarge)));
        assert!(matches!(transcript.hear(REQUEST).unwrap(), Heard::Whole(_)));
    }

    #[test]
    fn what_is_said_is_counted_and_refused_if_there_is_no_memory() {
        let memory = Budget::new(64 << 10);
        let mut transcript = Transcript::new(Arc::clone(&memory));
        transcript.hear(&[0, 0, 3, 0xec, 0, 0, 0xff, 0xff]).unwrap();
        let refused = transcript.hear(&vec![0; 40 << 10]);
        assert!(matches!(refused, Err(Error::NoMemory(_))));
        assert!(matches!(transcript.hear(REQUEST).unwrap(), Heard::Whole(_)));
        transcript.say(&vec![7; 100 << 10]);
        let end = REQUEST.len() as u64;
        assert_eq!(transcript.read(end, 100).unwrap(), [errno_byte(Errno::ENOMEM)].as_slice());
        assert_eq!(memory.used(), STEP);
        drop(transcript);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_request_is_counted_until_it_is_done() {
        let memory = Budget::new(1 << 20);
        let mut transcript = Transcript::new(Arc::clone(&memory));
        let body = vec![b'/'; 200 << 10];
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let heard = transcript.hear(&[&[0, 0, 3, 0xec][..], &length, &body].concat()).unwrap();
        let Heard::Whole(request) = heard else { panic!("{heard:?}") };
        let room = transcript.part_with(&request);
        // What is said next lets go what is not needed, and the handle may be closed.
        transcript.say(b"begun");
        drop(transcript);
        assert!(memory.used() >= request.body.len(), "{}", memory.used());
        drop(room);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_was_read_goes_in_the_end() {
        let mut transcript = transcript();
        transcript.say(&vec![7; KEPT + 1]);
        transcript.say(b"end");
        assert_eq!(transcript.read(KEPT as u64 + 1, 9).unwrap(), "end");
        assert!(transcript.read(0, 1).is_err());
        assert_eq!(transcript.read(KEPT as u64 + 2, 9).unwrap(), "nd");
    }
}
