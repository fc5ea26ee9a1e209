//! Transactions: snapshot isolation, made serializable by locking what was read.
//!
//! TiKV checks that nobody else committed to the keys that a transaction writes. So keys that were
//! only read are written too, as locks, which leave no value. Everyone who creates a file in a
//! directory reads its attr, and these locks would make them wait for each other. So a directory
//! has slots: keys next to its attr that never have a value. A shared lock on the directory is a
//! lock on one of them, and an exclusive lock is a lock on all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tikv_client::{Error as Cause, TimestampExt, Transaction};
use tokio::time::timeout;

use super::errors::{TIME_LIMIT, declines_one_phase, engine_error, is_rejection, timed_out};
use super::retry::Retry;
use super::store::{Cluster, options, page};
use super::undetermined_commit::{OldValue, Outcome, WrittenKey, determine_outcome};
use crate::error::{Error, Result};
use crate::meta::engine::CommitError;
use crate::meta::engine::kv::{Pair, Scan, StoreTxn};

/// An exclusive lock takes all of these.
const MAX_SLOTS: u8 = 32;
/// How often to check the outcome of an undetermined commit.
const OUTCOME_CHECKS: usize = 3;

pub(super) struct TikvTxn {
    cluster: Arc<Cluster>,
    inner: Transaction,
    /// Whether it may commit in one phase.
    one_phase: bool,
    /// What was read, by key.
    read: HashMap<Vec<u8>, Option<Bytes>>,
    /// Keys that must not change although they are not written.
    guards: BTreeSet<Vec<u8>>,
    writes: BTreeMap<Vec<u8>, Option<Bytes>>,
}

impl TikvTxn {
    pub async fn begin(cluster: Arc<Cluster>) -> Result<Self> {
        let mut retry = Retry::new(&cluster, "beginning a transaction");
        let one_phase = cluster.one_phase_commit.is_enabled();
        let inner = loop {
            let options = if one_phase { options().try_one_pc() } else { options() };
            let begun = cluster.client.begin_with_options(options);
            if let Some(inner) = retry.attempt(begun).await? {
                break inner;
            }
        };
        let (read, guards, writes) = (HashMap::new(), BTreeSet::new(), BTreeMap::new());
        Ok(Self { cluster, inner, one_phase, read, guards, writes })
    }

    /// Passes writes and locks to the library, writes first: one of them should become the primary
    /// key.
    async fn fill(&mut self) -> Result<(), Cause> {
        for (key, value) in &self.writes {
            let key = self.cluster.with_prefix(key);
            match value {
                Some(value) => self.inner.put(key, value.to_vec()).await?,
                None => self.inner.delete(key).await?,
            }
        }
        let locks = self.guards.iter().filter(|key| !self.writes.contains_key(*key));
        let locks: Vec<_> = locks.map(|key| self.cluster.with_prefix(key)).collect();
        self.inner.lock_keys(locks).await
    }

    /// Returns the keys that the commit writes, with their new values and, where known, the old
    /// ones.
    fn written_keys(&self) -> Vec<WrittenKey> {
        let write = |(key, new): (&Vec<u8>, &Option<Bytes>)| WrittenKey {
            key: key.clone(),
            old: self.read.get(key).cloned().map_or(OldValue::Unread, OldValue::Read),
            new: new.clone(),
        };
        self.writes.iter().map(write).collect()
    }

    /// Ends a commit whose outcome is not known, and finds out how it ended.
    async fn resolve_undetermined(&mut self, cause: Error) -> Result<(), CommitError> {
        let start = self.inner.start_timestamp();
        let Some(primary) = self.writes.keys().next() else {
            return Err(CommitError::Failed(cause));
        };
        let primary = primary.clone();
        for _ in 0..OUTCOME_CHECKS {
            match determine_outcome(&self.cluster, &primary, &start, &self.written_keys()).await {
                Outcome::Applied => return Ok(()),
                Outcome::NotApplied => {
                    // Safe only now: the primary key has decided, and all other keys follow it. If
                    // this fails, the locks expire.
                    self.roll_back().await;
                    return Err(CommitError::Conflict);
                }
                Outcome::NotStarted if self.roll_back().await || !self.one_phase => {
                    return Err(CommitError::Conflict);
                }
                // Most likely it has arrived meanwhile.
                Outcome::NotStarted => {}
                Outcome::Undetermined => break,
            }
        }
        Err(CommitError::Unknown(cause))
    }

    /// Removes the locks of a rejected commit. Returns whether all of them were removed.
    async fn roll_back(&mut self) -> bool {
        match timeout(TIME_LIMIT, self.inner.rollback()).await {
            Ok(Ok(())) => true,
            Ok(Err(cause)) => {
                tracing::debug!("{}", engine_error(&self.cluster.address.place, &cause));
                false
            }
            Err(_) => false,
        }
    }

    /// Handles the rejection of a commit. In one phase it may be the response to a retry, after the
    /// first request was applied and its response was lost. The rollback shows it: what is
    /// committed cannot be rolled back.
    async fn rejected(&mut self, cause: Error) -> Result<(), CommitError> {
        if self.roll_back().await || !self.one_phase {
            return Err(CommitError::Conflict);
        }
        self.resolve_undetermined(cause).await
    }
}

#[async_trait]
impl StoreTxn for TikvTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let cluster = self.cluster.clone();
        let mut retry = Retry::new(&cluster, "a read").over(cluster.span(keys));
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            let left = &keys[values.len()..];
            let some = &left[..left.len().min(retry.batch())];
            let full: Vec<_> = some.iter().map(|key| cluster.with_prefix(key)).collect();
            if let Some(pairs) = retry.attempt(self.inner.batch_get(full)).await? {
                values.extend(cluster.in_order(some, pairs));
            }
        }
        for (key, value) in keys.iter().zip(&values) {
            self.guards.insert(key.clone());
            self.read.insert(key.clone(), value.clone());
        }
        Ok(values)
    }

    /// Guards the keys that it finds. A transaction that adds a key guards the node it belongs to.
    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        let cluster = self.cluster.clone();
        let mut retry = Retry::new(&cluster, "a listing").over(cluster.range(scan));
        let mut scan = scan.clone();
        let mut all: Vec<Pair> = Vec::new();
        loop {
            let limit = page(scan.limit, all.len(), &retry);
            if limit == 0 || scan.start >= scan.end {
                break;
            }
            let request = self.inner.scan(cluster.range(&scan), limit);
            let Some(pairs) = retry.attempt(request).await? else { continue };
            let found: Vec<Pair> = pairs.map(|pair| cluster.pair(pair, scan.values)).collect();
            let is_last = found.len() < limit as usize;
            if let Some((last, _)) = found.last() {
                scan = scan.after(last);
                retry.restart(cluster.range(&scan));
            }
            all.extend(found);
            if is_last {
                break;
            }
        }
        self.guards.extend(all.iter().map(|(key, _)| key.clone()));
        Ok(all)
    }

    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.writes.insert(key, Some(value));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.writes.insert(key, None);
    }

    fn guard(&mut self, key: &[u8]) {
        self.guards.insert(key.to_vec());
    }

    fn lock_shared(&mut self, key: &[u8], slot: u8) {
        self.guards.remove(key);
        self.guards.insert(slot_key(key, slot));
    }

    fn lock_exclusive(&mut self, key: &[u8]) {
        // A transaction that writes the value itself uses no slot.
        self.guards.insert(key.to_vec());
        self.guards.extend((0..MAX_SLOTS).map(|slot| slot_key(key, slot)));
    }

    fn version(&self) -> u64 {
        self.inner.start_timestamp().version()
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let cluster = self.cluster.clone();
        let place = &cluster.address.place;
        let failed = |cause: &Cause| CommitError::Failed(engine_error(place, cause));
        self.fill().await.map_err(|cause| failed(&cause))?;
        match timeout(TIME_LIMIT, self.inner.commit()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(cause)) => {
                let error = engine_error(place, &cause);
                if declines_one_phase(&cause) {
                    cluster.one_phase_commit.pause();
                }
                if is_rejection(&cause) {
                    self.rejected(error).await
                } else {
                    self.resolve_undetermined(error).await
                }
            }
            Err(_) => self.resolve_undetermined(timed_out(place, "a commit")).await,
        }
    }
}

/// Deletes keys regardless of their values.
pub(super) async fn delete(cluster: Arc<Cluster>, keys: Vec<Pair>) -> Result<()> {
    let place = cluster.address.place.clone();
    let mut txn = TikvTxn::begin(cluster).await?;
    for (key, _) in keys {
        txn.delete(key);
    }
    match txn.commit().await {
        // If another client wrote one of them meanwhile, the next scan finds it.
        Ok(()) | Err(CommitError::Conflict) => Ok(()),
        Err(CommitError::Failed(error)) => Err(error),
        Err(CommitError::Unknown(cause)) => {
            Err(Error::Unknown { place, what: "wiping the volume", cause: cause.to_string() })
        }
    }
}

/// Returns the key of a slot. It extends the key of an attr, so no record has it. It never has a
/// value, so no client ever sees it.
fn slot_key(attr: &[u8], slot: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(attr.len() + 1);
    key.extend_from_slice(attr);
    key.push(slot);
    key
}
