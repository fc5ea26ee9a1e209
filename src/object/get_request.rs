//! Requests for an object or a range of it, and limits on the bytes that a store may send.

use std::ops::Range;

use crate::buffer_pool::Buffer;
use crate::error::{Error, Result};

/// No object of a volume is larger: a block of 16 MiB, and more than compression and encryption add
/// to it.
const MAX_OBJECT_SIZE: u64 = 17 << 20;

/// A request for a whole object or a range of it. The caller knows how large the object can be; a
/// store that sends more is in error, whatever length it announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetRequest {
    /// The requested bytes; `None` requests all.
    pub range: Option<Range<u64>>,
    /// The maximum size of the object.
    pub max_size: u64,
}

impl GetRequest {
    /// Requests all of an object of at most `max_size` bytes.
    pub fn whole_up_to(max_size: u64) -> Self {
        Self { range: None, max_size }
    }

    /// Requests a range of an object of at most `max_size` bytes.
    pub fn range_up_to(range: Range<u64>, max_size: u64) -> Self {
        Self { range: Some(range), max_size }
    }

    /// Requests all of an object of unknown size.
    pub fn whole() -> Self {
        Self::whole_up_to(MAX_OBJECT_SIZE)
    }

    /// Requests a range of an object of unknown size.
    pub fn range(range: Range<u64>) -> Self {
        Self::range_up_to(range, MAX_OBJECT_SIZE)
    }

    /// Returns how many bytes the store sends at most if it sends what was requested.
    pub fn max_length(&self) -> u64 {
        let asked = self.range.as_ref().map(|range| range.end.saturating_sub(range.start));
        asked.map_or(self.max_size, |asked| asked.min(self.max_size))
    }
}

/// A body that is being received, which must not exceed a limit.
pub struct ObjectBody {
    buffer: Buffer,
    limit: u64,
}

impl ObjectBody {
    /// `promised` is the length that the store announces: that much memory is allocated now.
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

/// Why a body is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    TooLong { limit: u64, promised: u64 },
    NoMemory(usize),
}

impl BodyError {
    /// Converts to the error that is reported for object `key`.
    pub fn into_error(self, place: &str, key: &str) -> Error {
        let cause = match self {
            Self::NoMemory(bytes) => return Error::NoMemory(bytes),
            Self::TooLong { limit, promised: 0 } => {
                format!("the store sends more than {limit} bytes, the maximum size of this object")
            }
            Self::TooLong { limit, promised } => {
                format!("the store announces {promised} bytes, but this object has at most {limit}")
            }
        };
        Error::Storage { place: place.to_owned(), action: "get", key: key.to_owned(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_allocated() {
        let promised = 10_000_000_000_000;
        let refused = ObjectBody::new(4 << 20, Some(promised)).err();
        assert_eq!(refused, Some(BodyError::TooLong { limit: 4 << 20, promised }));
    }

    #[test]
    fn a_body_of_unknown_length_grows_to_its_limit_and_no_further() {
        let mut body = ObjectBody::new(100_000, None).unwrap();
        for _ in 0..100 {
            body.extend(&[7; 1000]).unwrap();
        }
        assert!(matches!(body.extend(&[7]), Err(BodyError::TooLong { .. })));
        assert_eq!(body.freeze().len(), 100_000);
    }

    #[test]
    fn a_failed_allocation_is_an_error() {
        let most = u64::try_from(isize::MAX / 2).unwrap();
        let Err(error) = ObjectBody::new(u64::MAX, Some(most)) else { panic!("there is memory") };
        let told = error.into_error("s3://b/", "a");
        assert_eq!(told.errno(), nix::errno::Errno::ENOMEM);
    }
}
