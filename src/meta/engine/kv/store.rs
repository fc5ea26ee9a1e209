//! What an ordered key-value store must provide.
//!
//! Keys and values are bytes as JuiceFS lays them out. A store that has a key prefix of its own
//! adds it and strips it again.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::meta::engine::CommitError;

/// A key with its value.
pub type Pair = (Vec<u8>, Bytes);

/// A key and its new value, or `None` to delete it.
pub(super) type Mutation = (Vec<u8>, Option<Bytes>);

/// Keys from `start` on, below `end`, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Scan {
    pub start: Vec<u8>,
    /// Exclusive.
    pub end: Vec<u8>,
    pub limit: usize,
    /// Whether values are wanted. If not, they come back empty and need not be transferred.
    pub values: bool,
}

impl Scan {
    /// Every key that begins with `prefix`, with its value.
    pub fn prefix(prefix: Vec<u8>) -> Self {
        let end = after_prefix(&prefix);
        Self { start: prefix, end, limit: usize::MAX, values: true }
    }

    pub fn keys_only(self) -> Self {
        Self { values: false, ..self }
    }

    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Continues the scan after `key`.
    pub fn after(self, key: &[u8]) -> Self {
        let mut start = key.to_vec();
        start.push(0);
        Self { start, ..self }
    }
}

/// How stores differ where the mapping must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreProperties {
    /// The scheme of its addresses.
    pub name: &'static str,
    /// An empty value cannot be distinguished from a missing key.
    pub refuses_empty_values: bool,
    /// Change-log keys carry a shard byte below this number (TiKV: 64); `None` = no such byte.
    pub log_shards: Option<u16>,
    /// Entries that one transaction may remove or clone, at about six keys each.
    pub batch: usize,
    /// Slots for shared locks on one directory, at most 32, for a store whose commits only check
    /// the keys that they write (see [`StoreTxn::lock_shared`]). 0 for a store whose commits check
    /// everything they read.
    pub shared_lock_slots: u8,
}

/// One ordered key-value store with optimistic transactions.
#[async_trait]
pub trait KvStore: Send + Sync + 'static {
    fn properties(&self) -> StoreProperties;

    /// The address with every secret masked.
    fn address(&self) -> &str;

    /// Starts a transaction.
    async fn begin(&self) -> Result<Box<dyn StoreTxn>>;

    /// Returns the newest committed values, in the order of the keys, in one round trip and without
    /// guards.
    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>>;

    /// Returns the newest committed pairs, without guards. Fewer than the limit means that the
    /// range has no more.
    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>>;

    /// Deletes every key of the volume.
    async fn wipe(&self) -> Result<()>;

    /// Drops old versions that no reader needs any more, if the store leaves that to its clients.
    async fn drop_old_versions(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// One transaction. Everything it reads is guarded; unguarded reads go to the store directly.
///
/// A store whose transactions only check the keys that they write (TiKV) must make its commit check
/// the other keys too, for example by locking them. A store that cannot guard a range may guard the
/// keys found in it: whoever adds an entry also guards the directory's attr, which the remover of
/// the directory writes. A false conflict costs a retry and nothing else.
///
/// Locks exclude each other, though, and everyone who creates something in a directory guards it.
/// So a store with [`StoreProperties::shared_lock_slots`] learns which guards are
/// [shared](StoreTxn::lock_shared) and which keys need an [exclusive](StoreTxn::lock_exclusive)
/// lock. Many transactions may share a key; an exclusive lock conflicts with all of them.
#[async_trait]
pub trait StoreTxn: Send {
    /// Returns values in the order of the keys.
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>>;

    /// Returns pairs in order. Fewer than the limit means that the range has no more.
    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>>;

    /// Buffers a write. Reads of this transaction need not see it.
    fn put(&mut self, key: Vec<u8>, value: Bytes);

    fn delete(&mut self, key: Vec<u8>);

    /// Guards a key without reading it.
    fn guard(&mut self, key: &[u8]) {
        let _ = key;
    }

    /// Replaces the guard of a key that was read and is not written by a shared lock. It conflicts
    /// with an exclusive lock on the key and with a shared lock in the same slot, not with other
    /// slots.
    fn lock_shared(&mut self, key: &[u8], slot: u8) {
        let _ = (key, slot);
    }

    /// Locks a key whose value ceases to be what other transactions rely on. Conflicts with every
    /// shared lock on it.
    fn lock_exclusive(&mut self, key: &[u8]) {
        let _ = key;
    }

    /// Returns a number unique to this transaction within the volume. Later transactions have
    /// greater ones.
    fn version(&self) -> u64;

    /// Applies all writes if everything that was read is unchanged.
    async fn commit(&mut self) -> Result<(), CommitError>;
}

/// Returns the first key after all keys that begin with `prefix`.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only 0xFF bytes: no key of a volume begins like that.
    vec![u8::MAX; prefix.len() + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_is_one_higher() {
        assert_eq!(after_prefix(b"QU"), b"QV");
    }

    #[test]
    fn a_prefix_that_ends_in_ff_carries() {
        assert_eq!(after_prefix(&[b'A', 1, 0xFF, 0xFF]), [b'A', 2]);
    }

    #[test]
    fn a_scan_continues_right_after_the_last_key() {
        let scan = Scan::prefix(b"A".to_vec()).after(b"Ab");
        assert_eq!(scan.start, b"Ab\0");
        assert_eq!(scan.end, b"B");
    }
}
