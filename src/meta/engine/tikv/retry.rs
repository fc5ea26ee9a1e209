//! Retrying one request until it succeeds, within a bounded time.

use std::time::Duration;

use tikv_client::transaction::ResolveLocksOptions;
use tikv_client::{BoundRange, Error as Cause, Timestamp, TimestampExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::errors::{
    TIME_LIMIT, engine_error, is_too_large, is_transient, timed_out, transaction_without_primary,
};
use super::store::Cluster;
use crate::error::Result;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a transaction may take to reach its primary key: as long as its locks live.
const STRAGGLER_TIMEOUT: Duration = Duration::from_secs(4);

/// Keys or pairs per request. A scan asks every region of its range for that many, and the size of
/// a message is limited.
const MAX_BATCH: usize = 2048;
/// By how much a batch shrinks after a response that was too large. The library tries ten times
/// before it reports one, so the steps are large.
const SHRINK: usize = 8;

pub(super) struct Retry<'a> {
    cluster: &'a Cluster,
    what: &'static str,
    deadline: Instant,
    /// The keys that the request is about.
    keys: Option<BoundRange>,
    /// A transaction without a trace at its primary key, and since when it blocks this request.
    straggler: Option<(u64, Instant)>,
    batch: usize,
}

impl<'a> Retry<'a> {
    pub fn new(cluster: &'a Cluster, what: &'static str) -> Self {
        let deadline = Instant::now() + TIME_LIMIT;
        Self { cluster, what, deadline, keys: None, straggler: None, batch: MAX_BATCH }
    }

    /// Restarts the time limit for the next keys of the same listing.
    pub fn restart(&mut self, keys: BoundRange) {
        self.deadline = Instant::now() + TIME_LIMIT;
        self.keys = Some(keys);
    }

    /// Returns how many keys or pairs to request at once: fewer after a response that was too
    /// large.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Sets the keys that the request is about.
    pub fn over(self, keys: BoundRange) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// Waits for the response. Returns `None`, after a pause, if the caller should retry.
    pub async fn attempt<T>(
        &mut self,
        request: impl Future<Output = Result<T, Cause>> + Send,
    ) -> Result<Option<T>> {
        let place = &self.cluster.address.place;
        let cause = match timeout_at(self.deadline, request).await {
            Ok(Ok(response)) => {
                self.cluster.outage.succeeded(place);
                return Ok(Some(response));
            }
            Ok(Err(cause)) => cause,
            Err(_) => {
                let error = timed_out(place, self.what);
                self.cluster.outage.gave_up(&error);
                return Err(error);
            }
        };
        if is_too_large(&cause) && self.batch > 1 {
            self.batch = (self.batch / SHRINK).max(1);
            return Ok(None);
        }
        if !is_transient(&cause) || Instant::now() + PAUSE >= self.deadline {
            let error = engine_error(place, &cause);
            if is_transient(&cause) {
                self.cluster.outage.gave_up(&error);
            }
            return Err(error);
        }
        self.cluster.outage.failed(&engine_error(place, &cause));
        self.clear_straggler(transaction_without_primary(&cause)).await;
        sleep(PAUSE).await;
        Ok(None)
    }

    /// Rolls back a transaction that never reached its primary key. The library only rolls back
    /// what has a trace at the primary key, so these locks would stay.
    async fn clear_straggler(&mut self, straggler: Option<u64>) {
        let (Some(start), Some(keys)) = (straggler, &self.keys) else { return };
        match self.straggler {
            Some((known, since)) if known == start => {
                if since.elapsed() < STRAGGLER_TIMEOUT {
                    return;
                }
                let until = Timestamp::from_version(start);
                let options = ResolveLocksOptions::default();
                let cleared = self.cluster.client.cleanup_locks(keys.clone(), &until, options);
                if let Ok(Err(cause)) = timeout_at(self.deadline, cleared).await {
                    tracing::debug!("{}", engine_error(&self.cluster.address.place, &cause));
                }
            }
            _ => self.straggler = Some((start, Instant::now())),
        }
    }
}
