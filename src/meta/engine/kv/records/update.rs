//! What the record calls share: read some keys, compute and write; and walk a range.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;

use crate::error::{Error, Result};
use crate::meta::engine::CommitError;
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::store::Mutation;
use crate::meta::engine::kv::store::Scan;

/// Conflicts in a row before a call gives up.
const ATTEMPTS: u64 = 50;
/// Keys per page of a walk.
const PAGE: usize = 4096;
/// Keys deleted by one transaction.
const DELETES: usize = 1000;

impl KvEngine {
    /// Reads `keys` and writes what `compute` returns for their values, atomically. Calls `compute`
    /// again if another client interferes.
    pub(super) async fn update<T>(
        &self,
        what: &'static str,
        keys: &[Vec<u8>],
        compute: impl Fn(&[Option<Bytes>]) -> Result<(Vec<Mutation>, T)> + Send,
    ) -> Result<T> {
        for attempt in 0..ATTEMPTS {
            let mut kv = self.store.begin().await?;
            let values = kv.get(keys).await?;
            let (writes, output) = compute(&values)?;
            if writes.is_empty() {
                return Ok(output);
            }
            for (key, value) in writes {
                match value {
                    Some(value) => kv.put(key, value),
                    None => kv.delete(key),
                }
            }
            match kv.commit().await {
                Ok(()) => return Ok(output),
                Err(CommitError::Conflict) => pause(attempt).await,
                Err(CommitError::Failed(error)) => return Err(error),
                Err(CommitError::Unknown(cause)) => {
                    let place = self.store.address().to_owned();
                    return Err(Error::Unknown { place, what, cause: cause.to_string() });
                }
            }
        }
        Err(Error::Contended(what))
    }

    /// Writes regardless of the old values. They are read all the same: without them, nobody can
    /// tell how a commit ended whose response was lost.
    pub(super) async fn write(&self, what: &'static str, writes: Vec<Mutation>) -> Result<()> {
        let keys: Vec<Vec<u8>> = writes.iter().map(|(key, _)| key.clone()).collect();
        self.update(what, &keys, |_| Ok((writes.clone(), ()))).await
    }

    /// Deletes many keys, in several transactions.
    pub(super) async fn delete_all(&self, what: &'static str, keys: Vec<Vec<u8>>) -> Result<()> {
        for some in keys.chunks(DELETES) {
            self.write(what, some.iter().map(|key| (key.clone(), None)).collect()).await?;
        }
        Ok(())
    }

    /// Passes every pair of a range to `visit` in order, until it breaks.
    pub(super) async fn walk(
        &self,
        mut scan: Scan,
        mut visit: impl FnMut(&[u8], Bytes) -> Result<ControlFlow<()>> + Send,
    ) -> Result<()> {
        scan.limit = PAGE;
        loop {
            let page = self.store.scan(&scan).await?;
            let is_last = page.len() < PAGE;
            let last = page.last().map(|(key, _)| key.clone());
            for (key, value) in page {
                if visit(&key, value)?.is_break() {
                    return Ok(());
                }
            }
            match last {
                Some(last) if !is_last => scan = scan.after(&last),
                _ => return Ok(()),
            }
        }
    }

    /// Returns every key that begins with `prefix` and for which `passes` returns true.
    pub(super) async fn keys_under(
        &self,
        prefix: &[u8],
        passes: impl Fn(&[u8]) -> bool + Send + Sync,
    ) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        self.walk(Scan::prefix(prefix.to_vec()).keys_only(), |key, _| {
            if passes(key) {
                keys.push(key.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(keys)
    }
}

/// Sleeps for a random time, so that clients that keep colliding get out of step. The more attempts
/// failed, the longer it may be.
async fn pause(attempt: u64) {
    let ceiling = (attempt + 1) * (attempt + 1) * 1000;
    let micros = rand::rng().random_range(0..ceiling);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
