//! A volume in TiKV: the keys with one prefix.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tikv_client::transaction::HeartbeatOption;
use tikv_client::{
    BoundRange, CheckLevel, Key, KvPair, Snapshot, Timestamp, TransactionClient, TransactionOptions,
};

use super::address::Address;
use super::errors::{engine_error, unexpected_response};
use super::one_phase_commit::OnePhaseCommit;
use super::retry::Retry;
use super::txn::TikvTxn;
use crate::error::Result;
use crate::meta::engine::kv::{KvStore, Pair, Scan, StoreProperties, StoreTxn};
use crate::outage::{METADATA, Outage};
use crate::policy::OpenedFile;

/// Keys deleted by one transaction when a volume is wiped.
const DELETES: usize = 2000;
/// How many transactions can create files in one directory at once. Removing the directory locks as
/// many keys.
const SHARED_LOCK_SLOTS: u8 = 32;

/// Bytes of a listing that is requested as a whole: sessions, quotas, rules. Listings that may be
/// longer are requested page by page.
const LARGEST_LISTING: usize = 128 << 20;

/// What transactions and reads share.
pub(super) struct Cluster {
    pub client: TransactionClient,
    pub address: Address,
    pub one_phase_commit: OnePhaseCommit,
    /// The TLS files, which the library reads again for each connection.
    _files: Vec<OpenedFile>,
    pub outage: Outage,
}

pub(super) struct TikvStore {
    cluster: Arc<Cluster>,
}

impl Cluster {
    /// Returns the key as stored in TiKV.
    pub fn with_prefix(&self, key: &[u8]) -> Key {
        [&self.address.prefix, key].concat().into()
    }

    /// Returns the key as the mapping knows it.
    fn without_prefix(&self, key: Key) -> Vec<u8> {
        let mut key: Vec<u8> = key.into();
        key.drain(..self.address.prefix.len().min(key.len()));
        key
    }

    pub async fn timestamp(&self) -> Result<Timestamp> {
        let mut retry = Retry::new(self, "a timestamp");
        loop {
            if let Some(now) = retry.attempt(self.client.current_timestamp()).await? {
                return Ok(now);
            }
        }
    }

    /// Returns a view of the volume at a timestamp.
    pub fn snapshot(&self, at: Timestamp) -> Snapshot {
        self.client.snapshot(at, options())
    }

    /// Returns the values of the keys at a timestamp.
    pub async fn values(&self, keys: &[Vec<u8>], at: &Timestamp) -> Result<Vec<Option<Bytes>>> {
        let mut retry = Retry::new(self, "a read").over(self.span(keys));
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            let left = &keys[values.len()..];
            let some = &left[..left.len().min(retry.batch())];
            let full: Vec<Key> = some.iter().map(|key| self.with_prefix(key)).collect();
            let mut view = self.snapshot(at.clone());
            if let Some(pairs) = retry.attempt(view.batch_get(full)).await? {
                values.extend(self.in_order(some, pairs));
            }
        }
        Ok(values)
    }

    /// Returns the pairs of a scan at a timestamp.
    async fn pairs(&self, scan: &Scan, at: &Timestamp) -> Result<Vec<Pair>> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        let mut scan = scan.clone();
        let mut retry = Retry::new(self, "a listing").over(self.range(&scan));
        loop {
            let limit = page(scan.limit, all.len(), &retry);
            if limit == 0 || scan.start >= scan.end {
                return Ok(all);
            }
            let mut view = self.snapshot(at.clone());
            let range = self.range(&scan);
            let found: Option<Vec<Pair>> = if scan.values {
                let pairs = retry.attempt(view.scan(range, limit)).await?;
                pairs.map(|pairs| pairs.map(|pair| self.pair(pair, true)).collect())
            } else {
                let keys = retry.attempt(view.scan_keys(range, limit)).await?;
                keys.map(|keys| keys.map(|key| (self.without_prefix(key), Bytes::new())).collect())
            };
            let Some(found) = found else { continue };
            let is_last = found.len() < limit as usize;
            bytes += found.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            if bytes > LARGEST_LISTING {
                return Err(unexpected_response(&self.address.place, "an endless listing"));
            }
            if let Some((last, _)) = found.last() {
                if !(&scan.start..&scan.end).contains(&last) {
                    return Err(unexpected_response(
                        &self.address.place,
                        "a key outside the range of a listing",
                    ));
                }
                scan = scan.after(last);
                // Each page has its own time limit.
                retry.restart(self.range(&scan));
            }
            all.extend(found);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Returns the values in the order of the keys.
    pub fn in_order(
        &self,
        keys: &[Vec<u8>],
        pairs: impl Iterator<Item = KvPair>,
    ) -> Vec<Option<Bytes>> {
        let found: HashMap<Vec<u8>, Bytes> =
            pairs.map(|KvPair(key, value)| (self.without_prefix(key), value.into())).collect();
        keys.iter().map(|key| found.get(key).cloned()).collect()
    }

    /// Returns the range from the first to the last of the keys.
    pub fn span(&self, keys: &[Vec<u8>]) -> BoundRange {
        let first = keys.iter().min().map_or(&[][..], Vec::as_slice);
        let last = keys.iter().max().map_or(&[][..], Vec::as_slice);
        (self.with_prefix(first)..=self.with_prefix(last)).into()
    }

    pub fn range(&self, scan: &Scan) -> BoundRange {
        (self.with_prefix(&scan.start)..self.with_prefix(&scan.end)).into()
    }

    pub fn pair(&self, pair: KvPair, values: bool) -> Pair {
        let value = if values { pair.1.into() } else { Bytes::new() };
        (self.without_prefix(pair.0), value)
    }
}

/// Transactions here are short, so no task refreshes their locks: one per transaction, running for
/// ten seconds, would cost more than it is worth. A transaction without writes may just be dropped.
pub(super) fn options() -> TransactionOptions {
    TransactionOptions::new_optimistic()
        .drop_check(CheckLevel::None)
        .heartbeat_option(HeartbeatOption::NoHeartbeat)
}

/// Returns how many pairs the next request may return.
pub(super) fn page(limit: usize, have: usize, retry: &Retry<'_>) -> u32 {
    u32::try_from(limit.saturating_sub(have).min(retry.batch())).unwrap_or(u32::MAX)
}

impl TikvStore {
    pub fn new(client: TransactionClient, address: Address, files: Vec<OpenedFile>) -> Self {
        let (one_phase_commit, outage) = (OnePhaseCommit::new(), Outage::new(METADATA));
        Self {
            cluster: Arc::new(Cluster { client, address, one_phase_commit, outage, _files: files }),
        }
    }
}

#[async_trait]
impl KvStore for TikvStore {
    fn properties(&self) -> StoreProperties {
        StoreProperties {
            name: "tikv",
            refuses_empty_values: true,
            log_shards: Some(self.cluster.address.log_shards),
            // Every request of a commit contains all of its keys, so the cost grows with the
            // square.
            batch: 500,
            shared_lock_slots: SHARED_LOCK_SLOTS,
        }
    }

    fn address(&self) -> &str {
        &self.cluster.address.place
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        Ok(Box::new(TikvTxn::begin(self.cluster.clone()).await?))
    }

    /// Reads at the current timestamp. The protocol has one that means "the newest value" and would
    /// save the request for a timestamp, but the library does not support it.
    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let now = self.cluster.timestamp().await?;
        self.cluster.values(keys, &now).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>> {
        let now = self.cluster.timestamp().await?;
        self.cluster.pairs(scan, &now).await
    }

    async fn wipe(&self) -> Result<()> {
        let everything = Scan::prefix(Vec::new()).keys_only().limit(DELETES);
        loop {
            let keys = self.scan(&everything).await?;
            if keys.is_empty() {
                return Ok(());
            }
            super::txn::delete(self.cluster.clone(), keys).await?;
        }
    }

    /// TiKV drops nothing on its own: a client has to set the time from which versions are kept.
    async fn drop_old_versions(&self) -> Result<()> {
        let Some(interval) = self.cluster.address.gc_interval else { return Ok(()) };
        let mut point = self.cluster.timestamp().await?;
        point.physical -= i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
        let place = &self.cluster.address.place;
        self.cluster.client.gc(point).await.map_err(|cause| engine_error(place, &cause))?;
        Ok(())
    }
}
