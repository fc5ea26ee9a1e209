//! Object stores: get, put, delete, head and list of one bucket, and wrappers of the same trait.
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
    /// What and where it is, for errors and logs; never with secrets.
    fn place(&self) -> &str;

    /// The object, or the part of it that is wanted (as much as there is of it);
    /// [`Error::NotFound`](crate::Error::NotFound) if there is none. An object that is larger than
    /// the caller said it can be is an error, before it is in memory.
    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes>;

    /// Stores an object whole, in place of what was there. `tier` chooses its storage class.
    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()>;

    /// Removes an object; one that is not there is fine.
    async fn delete(&self, key: &str) -> Result<()>;

    /// What is known of an object; [`Error::NotFound`](crate::Error::NotFound) if there is none.
    async fn head(&self, key: &str) -> Result<Object>;

    /// Up to `limit` objects whose keys begin with `prefix` and come behind `after`, in byte order
    /// of their keys. Fewer than `limit` only if there are no more.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>>;

    /// Makes the bucket, if that can be done and it is not there.
    async fn create(&self) -> Result<()>;

    /// Whether a part of an object costs less than all of it.
    fn has_cheap_ranges(&self) -> bool {
        true
    }

    /// Whether an object that is got whole is compared with a checksum, where it has one. A part
    /// never is.
    fn verifies_whole(&self) -> bool {
        false
    }
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub size: u64,
    pub modified: SystemTime,
    /// Its storage class; empty where there are none.
    pub class: String,
    /// What the store says of bringing it back from an archive; only a head has it.
    pub restore: String,
}

impl Object {
    pub fn new(key: impl Into<String>, size: u64, modified: SystemTime) -> Self {
        Self { key: key.into(), size, modified, class: String::new(), restore: String::new() }
    }
}

/// The bytes of a body that a range names, as many as there are.
fn part(body: &Bytes, range: &Range<u64>) -> Bytes {
    let within = |at: u64| usize::try_from(at).map_or(body.len(), |at| at.min(body.len()));
    body.slice(within(range.start)..within(range.end).max(within(range.start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_where_the_body_does() {
        let body = Bytes::from_static(b"0123");
        assert_eq!(part(&body, &(1..3)), "12");
        assert_eq!(part(&body, &(3..9)), "3");
        assert_eq!(part(&body, &(7..9)), "");
        let (from, to) = (3, 1);
        assert_eq!(part(&body, &(from..to)), "");
    }
}
