//! Transactions: snapshot isolation, made serialisable by locking what was read.
//!
//! TiKV checks that nobody else committed to the keys that a transaction writes. Keys that it only
//! read are written too, then, as locks: they leave no value. Places, which everyone who works in a
//! directory reads, would make everyone wait for everyone. So a place has seats, keys beside it
//! that never have a value: whoever relies on it locks one of them, and whoever ends it locks all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tikv_client::{Error as Cause, TimestampExt, Transaction};
use tokio::time::timeout;

use super::fault::{PATIENCE, declines, engine_error, out_of_patience, refuses};
use super::patience::Patience;
use super::settle::{Before, Outcome, Trace, settle};
use super::store::{Cluster, options, page};
use crate::error::{Error, Result};
use crate::meta::engine::CommitError;
use crate::meta::engine::kv::{KvTxn, Pair, Scan};

/// How many seats a place has is the store's matter; here, what follows the place's key.
const MAX_SEATS: u8 = 32;
/// Looks at a commit whose end is not known.
const SETTLING: usize = 3;

pub(super) struct TikvTxn {
    cluster: Arc<Cluster>,
    inner: Transaction,
    /// Whether it may be committed by the request that writes its keys.
    one_phase: bool,
    /// What was read, by key.
    seen: HashMap<Vec<u8>, Option<Bytes>>,
    /// What must not change though it is not written.
    guards: BTreeSet<Vec<u8>>,
    writes: BTreeMap<Vec<u8>, Option<Bytes>>,
}

impl TikvTxn {
    pub async fn begin(cluster: Arc<Cluster>) -> Result<Self> {
        let mut patience = Patience::new(&cluster, "beginning a transaction");
        let one_phase = cluster.phases.one();
        let inner = loop {
            let options = if one_phase { options().try_one_pc() } else { options() };
            let begun = cluster.client.begin_with_options(options);
            if let Some(inner) = patience.answer(begun).await? {
                break inner;
            }
        };
        let (seen, guards, writes) = (HashMap::new(), BTreeSet::new(), BTreeMap::new());
        Ok(Self { cluster, inner, one_phase, seen, guards, writes })
    }

    /// Hands writes and locks over, the writes first: the primary should be one of them.
    async fn fill(&mut self) -> Result<(), Cause> {
        for (key, value) in &self.writes {
            let key = self.cluster.full(key);
            match value {
                Some(value) => self.inner.put(key, value.to_vec()).await?,
                None => self.inner.delete(key).await?,
            }
        }
        let locks = self.guards.iter().filter(|key| !self.writes.contains_key(*key));
        let locks: Vec<_> = locks.map(|key| self.cluster.full(key)).collect();
        self.inner.lock_keys(locks).await
    }

    /// What the commit leaves if it goes through and nobody comes after it, and what was there
    /// before, where that is known.
    fn traces(&self) -> Vec<Trace> {
        let trace = |(key, new): (&Vec<u8>, &Option<Bytes>)| Trace {
            key: key.clone(),
            old: self.seen.get(key).cloned().map_or(Before::Unread, Before::Read),
            new: new.clone(),
        };
        self.writes.iter().map(trace).collect()
    }

    /// A commit whose end is not known: makes sure that it has ended, and looks how.
    async fn find_out(&mut self, cause: Error) -> Result<(), CommitError> {
        let start = self.inner.start_timestamp();
        let Some(primary) = self.writes.keys().next() else {
            return Err(CommitError::Failed(cause));
        };
        let primary = primary.clone();
        for _ in 0..SETTLING {
            match settle(&self.cluster, &primary, &start, &self.traces()).await {
                Outcome::Applied => return Ok(()),
                Outcome::Absent => {
                    // Safe only now: the primary key has decided, so no other key can differ from
                    // it. Should it fail, the locks expire.
                    self.roll_back().await;
                    return Err(CommitError::Conflict);
                }
                Outcome::NeverBegun if self.roll_back().await || !self.one_phase => {
                    return Err(CommitError::Conflict);
                }
                // It has arrived meanwhile, most likely.
                Outcome::NeverBegun => {}
                Outcome::Unclear => break,
            }
        }
        Err(CommitError::Unknown(cause))
    }

    /// Takes back what a refused commit has locked, and says whether it is all taken back.
    async fn roll_back(&mut self) -> bool {
        match timeout(PATIENCE, self.inner.rollback()).await {
            Ok(Ok(())) => true,
            Ok(Err(cause)) => {
                tracing::debug!("{}", engine_error(&self.cluster.address.place, &cause));
                false
            }
            Err(_) => false,
        }
    }

    /// A commit that was answered with a refusal. In one phase that may be the answer to a
    /// repetition, after the first request came through and its answer was lost. But what is
    /// committed cannot be rolled back, so that tells.
    async fn refused(&mut self, cause: Error) -> Result<(), CommitError> {
        if self.roll_back().await || !self.one_phase {
            return Err(CommitError::Conflict);
        }
        self.find_out(cause).await
    }
}

#[async_trait]
impl KvTxn for TikvTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let cluster = self.cluster.clone();
        let mut patience = Patience::new(&cluster, "a read").over(cluster.span(keys));
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            let left = &keys[values.len()..];
            let some = &left[..left.len().min(patience.most())];
            let full: Vec<_> = some.iter().map(|key| cluster.full(key)).collect();
            if let Some(pairs) = patience.answer(self.inner.batch_get(full)).await? {
                values.extend(cluster.in_order(some, pairs));
            }
        }
        for (key, value) in keys.iter().zip(&values) {
            self.guards.insert(key.clone());
            self.seen.insert(key.clone(), value.clone());
        }
        Ok(values)
    }

    /// Guards the keys that it found. Who adds one guards the node that it belongs to.
    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        let cluster = self.cluster.clone();
        let mut patience = Patience::new(&cluster, "a listing").over(cluster.range(scan));
        let mut scan = scan.clone();
        let mut all: Vec<Pair> = Vec::new();
        loop {
            let limit = page(scan.limit, all.len(), &patience);
            if limit == 0 || scan.start >= scan.end {
                break;
            }
            let asked = self.inner.scan(cluster.range(&scan), limit);
            let Some(pairs) = patience.answer(asked).await? else { continue };
            let found: Vec<Pair> = pairs.map(|pair| cluster.pair(pair, scan.values)).collect();
            let is_last = found.len() < limit as usize;
            if let Some((last, _)) = found.last() {
                scan = scan.after(last);
                patience.again(cluster.range(&scan));
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

    fn share(&mut self, key: &[u8], seat: u8) {
        self.guards.remove(key);
        self.guards.insert(seat_of(key, seat));
    }

    fn seize(&mut self, key: &[u8]) {
        // Who writes the value itself takes no seat.
        self.guards.insert(key.to_vec());
        self.guards.extend((0..MAX_SEATS).map(|seat| seat_of(key, seat)));
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
        match timeout(PATIENCE, self.inner.commit()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(cause)) => {
                let error = engine_error(place, &cause);
                if declines(&cause) {
                    cluster.phases.declined();
                }
                if refuses(&cause) { self.refused(error).await } else { self.find_out(error).await }
            }
            Err(_) => self.find_out(out_of_patience(place, "a commit")).await,
        }
    }
}

/// Deletes keys whatever they hold.
pub(super) async fn delete(cluster: Arc<Cluster>, keys: Vec<Pair>) -> Result<()> {
    let place = cluster.address.place.clone();
    let mut txn = TikvTxn::begin(cluster).await?;
    for (key, _) in keys {
        txn.delete(key);
    }
    match txn.commit().await {
        // Whoever wrote one of them meanwhile: the next look at the range finds it.
        Ok(()) | Err(CommitError::Conflict) => Ok(()),
        Err(CommitError::Failed(error)) => Err(error),
        Err(CommitError::Unknown(cause)) => {
            Err(Error::Unknown { place, what: "wiping the volume", cause: cause.to_string() })
        }
    }
}

/// A key that no record has: an attr's key ends where this one goes on. It never has a value, so no
/// client ever sees it.
fn seat_of(place: &[u8], seat: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(place.len() + 1);
    key.extend_from_slice(place);
    key.push(seat);
    key
}
