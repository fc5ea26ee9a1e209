//! Object stores: get, put, delete, head and list on one bucket, and wrappers of the same trait.
//!
//! Knows nothing of blocks or volumes: a key is text, a body is bytes.

pub mod file;
mod get_request;
pub mod mem;
mod open;
mod probe;
pub mod s3;
mod spec;
mod tier;
mod wrappers;

use std::ops::Range;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::get_request::GetRequest;
pub use self::open::{STORAGES, open};
pub use self::probe::{TEST_PREFIX, probe};
pub use self::spec::{Encryption, Spec, Tier};
pub use self::wrappers::metrics::{Measured, Metrics};
pub use self::wrappers::retry::health::StoreHealth;
pub use self::wrappers::{encrypt, fault_injection, replaceable, retry};
use crate::error::Result;

/// One bucket, or something that behaves like one.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Returns what and where the store is, for errors and logs. Never contains secrets.
    fn place(&self) -> &str;

    /// Returns the object, or the requested range as far as the object reaches;
    /// [`Error::NotFound`](crate::Error::NotFound) if it does not exist. An object larger than the
    /// requested maximum is an error, detected before it is in memory.
    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes>;

    /// Stores an object, replacing any existing one. `tier` selects its storage class.
    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()>;

    /// Deletes an object. A missing object is not an error.
    async fn delete(&self, key: &str) -> Result<()>;

    /// Returns the properties of an object; [`Error::NotFound`](crate::Error::NotFound) if it does
    /// not exist.
    async fn head(&self, key: &str) -> Result<Object>;

    /// Returns up to `limit` objects whose keys begin with `prefix` and come after `after`, in byte
    /// order of their keys. Returns fewer than `limit` only if there are no more.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>>;

    /// Creates the bucket if it is missing and the store can create buckets.
    async fn create(&self) -> Result<()>;

    /// Whether reading a range of an object costs less than reading all of it.
    fn has_cheap_ranges(&self) -> bool {
        true
    }

    /// Whether an object that is read whole is verified against its checksum, if it has one. A
    /// range never is.
    fn verifies_whole(&self) -> bool {
        false
    }
}

/// The properties of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub size: u64,
    pub modified: SystemTime,
    /// Storage class; empty if the store has none.
    pub class: String,
    /// State of a restore from an archive, as the store reports it; only set by `head`.
    pub restore: String,
}

impl Object {
    pub fn new(key: impl Into<String>, size: u64, modified: SystemTime) -> Self {
        Self { key: key.into(), size, modified, class: String::new(), restore: String::new() }
    }
}

/// Returns the bytes of a body within a range, as far as the body reaches.
fn part(body: &Bytes, range: &Range<u64>) -> Bytes {
    let within = |at: u64| usize::try_from(at).map_or(body.len(), |at| at.min(body.len()));
    body.slice(within(range.start)..within(range.end).max(within(range.start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_where_the_body_does() {
        let body = Bytes::from_static(b"0123");
        assert_eq!(part(&body, &(1..3)), "12");
        assert_eq!(part(&body, &(3..9)), "3");
        assert_eq!(part(&body, &(7..9)), "");
        let (from, to) = (3, 1);
        assert_eq!(part(&body, &(from..to)), "");
    }
}
