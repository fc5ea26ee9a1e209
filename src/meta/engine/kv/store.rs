//! What the mapping needs of an ordered key-value store.
//!
//! Keys and values are bytes as JuiceFS lays them out; a store adds its own key prefix, if it has
//! one, and strips it again.

use async_trait::async_trait;
use bytes::Bytes;

use super::super::CommitError;
use crate::error::Result;

/// A key with its value.
pub type Pair = (Vec<u8>, Bytes);

/// Keys from `start` on, below `end`, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Scan {
    pub start: Vec<u8>,
    /// Exclusive.
    pub end: Vec<u8>,
    pub limit: usize,
    /// Whether values are wanted; without them they come back empty, and travel for nothing.
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

    /// The same scan, from behind `key` on.
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
    /// An empty value cannot be told from a missing key.
    pub refuses_empty_values: bool,
    /// Change-log keys carry a shard byte below this number (TiKV: 64); `None` = no such byte.
    pub log_shards: Option<u16>,
    /// Entries that one transaction may remove or clone, at about six keys each.
    pub batch: usize,
    /// Seats of a place, at most 32, for a store whose commits only check the keys they write (see
    /// [`KvTxn::share`]); 0 for one whose commits check everything they read.
    pub seats: u8,
}

/// One ordered key-value store with optimistic transactions.
#[async_trait]
pub trait KvStore: Send + Sync + 'static {
    fn properties(&self) -> StoreProperties;

    /// The address with every secret masked.
    fn address(&self) -> &str;

    /// Starts a transaction.
    async fn begin(&self) -> Result<Box<dyn KvTxn>>;

    /// The newest committed values, in the order of the keys; one round trip, no guards.
    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>>;

    /// The newest committed pairs, no guards. Fewer than the limit come only at the end.
    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>>;

    /// Deletes every key of the volume.
    async fn wipe(&self) -> Result<()>;

    /// Drops versions that nobody can ask for any more, if the store leaves that to its clients.
    async fn drop_old_versions(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// One transaction. Everything it reads is a guard: what needs no guarding is read from the store.
///
/// A store whose transactions only check the keys they write (TiKV) must make its commit check the
/// others too, such as by locking them. One that cannot watch a range may watch the keys found in
/// it: whoever adds an entry also guards the directory's attr, which the remover of the directory
/// writes. A guard that trips without need costs a retry, no more.
///
/// Locks exclude each other, though, and everyone who makes something in a directory guards it. So
/// a store with [`StoreProperties::seats`] is told which guards are [shared](KvTxn::share) and who
/// [ends](KvTxn::seize) them: many may share, and one who seizes conflicts with them all.
#[async_trait]
pub trait KvTxn: Send {
    /// Values in the order of the keys.
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>>;

    /// Pairs in order; fewer than the limit come only at the end.
    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>>;

    /// Buffers a write. Reads of this transaction need not see it.
    fn put(&mut self, key: Vec<u8>, value: Bytes);

    fn delete(&mut self, key: Vec<u8>);

    /// Guards a key without reading it.
    fn guard(&mut self, key: &[u8]) {
        let _ = key;
    }

    /// Turns the guard of a key that was read and is not written into a shared one: it conflicts
    /// with who seizes the key and with who sits on the same seat, not with other seats.
    fn share(&mut self, key: &[u8], seat: u8) {
        let _ = (key, seat);
    }

    /// Announces that the value of a key ceases to be what others rely on: conflicts with everyone
    /// who shares it.
    fn seize(&mut self, key: &[u8]) {
        let _ = key;
    }

    /// A number that no other transaction of the volume has, later ones having greater ones.
    fn version(&self) -> u64;

    /// Applies all writes, if everything read is as it was.
    async fn commit(&mut self) -> Result<(), CommitError>;
}

/// The first key behind all that begin with `prefix`.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only 0xFF bytes, which no key of a volume begins with.
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
    fn a_scan_goes_on_right_behind_the_last_key() {
        let scan = Scan::prefix(b"A".to_vec()).after(b"Ab");
        assert_eq!(scan.start, b"Ab\0");
        assert_eq!(scan.end, b"B");
    }
}
