//! What is asked of an object, and how many bytes may come in answer.

use std::ops::Range;

use crate::buffer_pool::Buffer;
use crate::error::{Error, Result};

/// No object of a volume is larger: a block of 16 MiB, and more than what packing and encryption
/// add to it.
const MAX_OBJECT_SIZE: u64 = 17 << 20;

/// The whole of an object or a part of it. Whoever asks knows how large the object can be; a store
/// that sends more is not believed, whatever it says before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetRequest {
    /// Which bytes; none stands for all.
    pub range: Option<Range<u64>>,
    /// The object has at most so many bytes.
    pub max_size: u64,
}

impl GetRequest {
    /// All of an object of at most so many bytes.
    pub fn whole_up_to(max_size: u64) -> Self {
        Self { range: None, max_size }
    }

    /// Some bytes of an object of at most `most`.
    pub fn range_up_to(range: Range<u64>, max_size: u64) -> Self {
        Self { range: Some(range), max_size }
    }

    /// All of an object of unknown size.
    pub fn whole() -> Self {
        Self::whole_up_to(MAX_OBJECT_SIZE)
    }

    /// Some bytes of an object of unknown size.
    pub fn range(range: Range<u64>) -> Self {
        Self::range_up_to(range, MAX_OBJECT_SIZE)
    }

    /// How many bytes come at most if the store answers with what was asked for.
    pub fn max_length(&self) -> u64 {
        let asked = self.range.as_ref().map(|range| range.end.saturating_sub(range.start));
        asked.map_or(self.max_size, |asked| asked.min(self.max_size))
    }
}

/// A body on its way here, which may not grow beyond a limit.
pub struct ObjectBody {
    buffer: Buffer,
    limit: u64,
}

impl ObjectBody {
    /// `promised` is what the store says how long it will be: that much memory is taken now.
    pub fn new(limit: u64, promised: Option<u64>) -> Result<Self, BodyError> {
        let promised = promised.unwrap_or_default();
        if promised > limit {
            return Err(BodyError::TooLong { limit, promised });
        }
        let capacity = usize::try_from(promised).map_err(|_| BodyError::NoMemory(usize::MAX))?;
        let buffer = Buffer::try_with_capacity(capacity).ok_or(BodyError::NoMemory(capacity))?;
        Ok(Self { buffer, limit })
    }

    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        let length = self.buffer.len() as u64 + bytes.len() as u64;
        if length > self.limit {
            return Err(BodyError::TooLong { limit: self.limit, promised: 0 });
        }
        self.buffer.try_extend(bytes).ok_or(BodyError::NoMemory(self.buffer.len() + bytes.len()))
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
pub enum BodyError {
    TooLong { limit: u64, promised: u64 },
    NoMemory(usize),
}

impl BodyError {
    /// What the caller is told of object `key`.
    pub fn into_error(self, place: &str, key: &str) -> Error {
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
        let refused = ObjectBody::new(4 << 20, Some(promised)).err();
        assert_eq!(refused, Some(BodyError::TooLong { limit: 4 << 20, promised }));
    }

    #[test]
    fn a_body_without_a_promise_grows_to_its_limit_and_no_further() {
        let mut body = ObjectBody::new(100_000, None).unwrap();
        for _ in 0..100 {
            body.extend(&[7; 1000]).unwrap();
        }
        assert!(matches!(body.extend(&[7]), Err(BodyError::TooLong { .. })));
        assert_eq!(body.freeze().len(), 100_000);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let most = u64::try_from(isize::MAX / 2).unwrap();
        let Err(error) = ObjectBody::new(u64::MAX, Some(most)) else { panic!("there is memory") };
        let told = error.into_error("s3://b/", "a");
        assert_eq!(told.errno(), nix::errno::Errno::ENOMEM);
    }
}
