//! What is asked of an object, and how many bytes may come in answer.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::page::Buffer;

/// No object of a volume is larger: a block of 16 MiB, and more than what packing and encryption
/// add to it.
const LARGEST: u64 = 17 << 20;

/// The whole of an object or a part of it. Whoever asks knows how large the object can be; a store
/// that sends more is not believed, whatever it says before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which bytes; none stands for all.
    pub part: Option<Range<u64>>,
    /// The object has at most so many bytes.
    pub most: u64,
}

impl Wanted {
    /// All of an object of at most so many bytes.
    pub fn whole(most: u64) -> Self {
        Self { part: None, most }
    }

    /// Some bytes of an object of at most `most`.
    pub fn part(part: Range<u64>, most: u64) -> Self {
        Self { part: Some(part), most }
    }

    /// All of an object of unknown size.
    pub fn all() -> Self {
        Self::whole(LARGEST)
    }

    /// Some bytes of an object of unknown size.
    pub fn bytes(part: Range<u64>) -> Self {
        Self::part(part, LARGEST)
    }

    /// How many bytes come at most if the store answers with what was asked for.
    pub fn length(&self) -> u64 {
        let asked = self.part.as_ref().map(|part| part.end.saturating_sub(part.start));
        asked.map_or(self.most, |asked| asked.min(self.most))
    }
}

/// A body on its way here, which may not grow beyond a limit.
pub struct Body {
    buffer: Buffer,
    limit: u64,
}

impl Body {
    /// `promised` is what the store says how long it will be: that much memory is taken now.
    pub fn new(limit: u64, promised: Option<u64>) -> Result<Self, Excess> {
        let promised = promised.unwrap_or_default();
        if promised > limit {
            return Err(Excess::TooLong { limit, promised });
        }
        let capacity = usize::try_from(promised).map_err(|_| Excess::NoMemory(usize::MAX))?;
        let buffer = Buffer::try_with_capacity(capacity).ok_or(Excess::NoMemory(capacity))?;
        Ok(Self { buffer, limit })
    }

    pub fn extend(&mut self, piece: &[u8]) -> Result<(), Excess> {
        let length = self.buffer.len() as u64 + piece.len() as u64;
        if length > self.limit {
            return Err(Excess::TooLong { limit: self.limit, promised: 0 });
        }
        self.buffer.try_extend(piece).ok_or(Excess::NoMemory(self.buffer.len() + piece.len()))
    }

    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn freeze(self) -> bytes::Bytes {
        self.buffer.freeze()
    }
}

/// Why a body is not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Excess {
    TooLong { limit: u64, promised: u64 },
    NoMemory(usize),
}

impl Excess {
    /// What the caller is told of object `key`.
    pub fn of(self, place: &str, key: &str) -> Error {
        let cause = match self {
            Self::NoMemory(bytes) => return Error::NoMemory(bytes),
            Self::TooLong { limit, promised: 0 } => {
                format!("more than {limit} bytes come, which is all that it can have")
            }
            Self::TooLong { limit, promised } => {
                format!("{promised} bytes are to come, and it can have {limit} at most")
            }
        };
        Error::Storage { place: place.to_owned(), action: "get", key: key.to_owned(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_beyond_the_limit_is_refused_before_memory_is_taken() {
        let promised = 10_000_000_000_000;
        let refused = Body::new(4 << 20, Some(promised)).err();
        assert_eq!(refused, Some(Excess::TooLong { limit: 4 << 20, promised }));
    }

    #[test]
    fn a_body_without_a_promise_grows_to_its_limit_and_no_further() {
        let mut body = Body::new(100_000, None).unwrap();
        for _ in 0..100 {
            body.extend(&[7; 1000]).unwrap();
        }
        assert!(matches!(body.extend(&[7]), Err(Excess::TooLong { .. })));
        assert_eq!(body.freeze().len(), 100_000);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let most = u64::try_from(isize::MAX / 2).unwrap();
        let Err(excess) = Body::new(u64::MAX, Some(most)) else { panic!("there is memory") };
        let told = excess.of("s3://b/", "a");
        assert_eq!(told.errno(), nix::errno::Errno::ENOMEM);
    }
}
