//! What was said in a conversation: requests and answers behind each other, as a reader finds them
//! by offset.

use bytes::{Buf, Bytes, BytesMut};

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

#[derive(Default)]
pub struct Transcript {
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

impl Transcript {
    pub fn hear(&mut self, bytes: &[u8]) -> Result<Heard> {
        self.pending.extend_from_slice(bytes);
        let mut head = &self.pending[..];
        let (Ok(op), Ok(length)) = (head.try_get_u32(), head.try_get_u32()) else {
            return Ok(Heard::Part);
        };
        let length = length as usize;
        if length > LONGEST {
            self.pending.clear();
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

    pub fn say(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
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
            self.text.advance(BEHIND);
            self.start += BEHIND as u64;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = &[0, 0, 3, 0xed, 0, 0, 0, 3, 1, 2, 3];

    #[test]
    fn a_request_may_come_in_pieces() {
        let mut transcript = Transcript::default();
        for byte in &REQUEST[..REQUEST.len() - 1] {
            assert_eq!(transcript.hear(&[*byte]).unwrap(), Heard::Part);
        }
        let request = Request { op: 1005, body: Bytes::from_static(&[1, 2, 3]) };
        assert_eq!(transcript.hear(&[3]).unwrap(), Heard::Whole(request));
    }

    #[test]
    fn the_answer_follows_the_request() {
        let mut transcript = Transcript::default();
        transcript.hear(REQUEST).unwrap();
        assert_eq!(transcript.read(REQUEST.len() as u64, 100).unwrap(), "");
        transcript.say(b"fine");
        assert_eq!(transcript.read(REQUEST.len() as u64, 100).unwrap(), "fine");
        assert_eq!(transcript.read(0, 4).unwrap(), &REQUEST[..4]);
    }

    #[test]
    fn a_request_longer_than_it_says_is_broken() {
        let mut transcript = Transcript::default();
        assert_eq!(transcript.hear(&[REQUEST, &[9]].concat()).unwrap(), Heard::Broken);
        // The next one is heard.
        assert!(matches!(transcript.hear(REQUEST).unwrap(), Heard::Whole(_)));
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let mut transcript = Transcript::default();
        let refused = transcript.hear(&[0, 0, 3, 0xec, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(refused, Err(Error::TooLarge)));
        assert!(matches!(transcript.hear(REQUEST).unwrap(), Heard::Whole(_)));
    }

    #[test]
    fn what_was_read_goes_in_the_end() {
        let mut transcript = Transcript::default();
        transcript.say(&vec![7; KEPT + 1]);
        transcript.say(b"end");
        assert_eq!(transcript.read(KEPT as u64 + 1, 9).unwrap(), "end");
        assert!(transcript.read(0, 1).is_err());
        assert_eq!(transcript.read(KEPT as u64 + 2, 9).unwrap(), "nd");
    }
}
