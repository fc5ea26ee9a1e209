//! Patience: one answer, however often it has to be asked for, within a bounded time.

use std::time::Duration;

use tikv_client::transaction::ResolveLocksOptions;
use tikv_client::{BoundRange, Error as Cause, Timestamp, TimestampExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::fault::{
    PATIENCE, engine_error, out_of_patience, passes, too_large, unknown_transaction,
};
use super::store::Cluster;
use crate::error::Result;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a transaction may be on its way to its primary key: as long as its locks live.
const STRAGGLING: Duration = Duration::from_secs(4);

/// Keys or pairs asked for at once. A scan asks every region of its range for that many, and a
/// message is limited, so it is not more.
const MOST: usize = 2048;
/// The library tries ten times what cannot succeed, so not in small steps.
const SMALLER: usize = 8;

pub(super) struct Patience<'a> {
    cluster: &'a Cluster,
    what: &'static str,
    deadline: Instant,
    /// The keys that are asked for.
    keys: Option<BoundRange>,
    /// A transaction whose primary key does not know it, and since when it is in the way.
    straggler: Option<(u64, Instant)>,
    /// How many keys or pairs to ask for at once.
    most: usize,
}

impl<'a> Patience<'a> {
    pub fn new(cluster: &'a Cluster, what: &'static str) -> Self {
        let deadline = Instant::now() + PATIENCE;
        Self { cluster, what, deadline, keys: None, straggler: None, most: MOST }
    }

    /// Begins anew for the next keys of the same listing.
    pub fn again(&mut self, keys: BoundRange) {
        self.deadline = Instant::now() + PATIENCE;
        self.keys = Some(keys);
    }

    /// How many keys or pairs to ask for at once: fewer after an answer that was too large.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Patience for an answer about these keys.
    pub fn over(self, keys: BoundRange) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// The answer; `None`, after a moment, if it is worth asking again.
    pub async fn answer<T>(
        &mut self,
        asked: impl Future<Output = Result<T, Cause>> + Send,
    ) -> Result<Option<T>> {
        let place = &self.cluster.address.place;
        let cause = match timeout_at(self.deadline, asked).await {
            Ok(Ok(answer)) => {
                self.cluster.outage.succeeded(place);
                return Ok(Some(answer));
            }
            Ok(Err(cause)) => cause,
            Err(_) => {
                let error = out_of_patience(place, self.what);
                self.cluster.outage.gave_up(&error);
                return Err(error);
            }
        };
        if too_large(&cause) && self.most > 1 {
            self.most = (self.most / SMALLER).max(1);
            return Ok(None);
        }
        if !passes(&cause) || Instant::now() + PAUSE >= self.deadline {
            let error = engine_error(place, &cause);
            if passes(&cause) {
                self.cluster.outage.gave_up(&error);
            }
            return Err(error);
        }
        self.cluster.outage.failed(&engine_error(place, &cause));
        self.clear(unknown_transaction(&cause)).await;
        sleep(PAUSE).await;
        Ok(None)
    }

    /// Rolls back a transaction that never reached its primary key. The library only does so if the
    /// primary key knows of it; until then the locks would stay.
    async fn clear(&mut self, straggler: Option<u64>) {
        let (Some(start), Some(keys)) = (straggler, &self.keys) else { return };
        match self.straggler {
            Some((known, since)) if known == start => {
                if since.elapsed() < STRAGGLING {
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
