//! The heartbeat: keeping the session alive and what this client knows up to date.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, warn};

use super::Meta;
use super::session::DEFAULT_BEAT;
use crate::error::{Error, Result};
use crate::meta::Sid;

const USAGE_PERIOD: Duration = Duration::from_secs(1);
const DIR_STATS_PERIOD: Duration = Duration::from_secs(1);
const QUOTAS_PERIOD: Duration = Duration::from_secs(3);

impl Meta {
    /// One heartbeat: the session lives on, and setting, usage and quotas are read again. One that
    /// fails does not keep the others from trying.
    pub async fn beat(&self) -> Result<()> {
        let session = self.extend_session().await;
        session.and(self.refresh().await)
    }

    /// Learns what others have changed of what this client only looks at now and then: the setting, usage
    /// and quotas.
    pub async fn refresh(&self) -> Result<()> {
        self.reload().await?;
        self.facts.parents.doubt_all();
        let usage = self.reload_usage().await;
        let quotas = self.reload_quotas().await;
        usage.and(quotas)
    }

    pub(super) fn start_heartbeat(self: &Arc<Self>) {
        let heartbeat = self.facts.options.heartbeat;
        let period = if heartbeat.is_zero() { DEFAULT_BEAT } else { heartbeat };
        self.every(period, |meta| async move {
            if meta.check_ours().is_err() {
                return;
            }
            if let Err(error) = meta.beat().await {
                meta.counts.missed_beat();
                if meta.check_ours().is_err() {
                    error!(%error, "the volume is lost: it must be unmounted");
                } else {
                    tell(&error, "heartbeat failed");
                }
            }
        });
    }

    pub(super) fn start_flushing(self: &Arc<Self>) {
        self.every(USAGE_PERIOD, |meta| async move {
            meta.try_flush("usage", meta.flush_usage()).await;
        });
        self.every(DIR_STATS_PERIOD, |meta| async move {
            meta.try_flush("dir stats", meta.flush_dir_stats()).await;
        });
        self.every(QUOTAS_PERIOD, |meta| async move {
            meta.try_flush("quotas", meta.flush_quotas()).await;
        });
        self.whenever(Arc::clone(&self.strays.bell), |meta| async move {
            meta.try_flush("quotas", meta.settle_strays()).await;
        });
    }

    /// What a flush cannot tell the store stays owed, so a failure only matters if it lasts.
    async fn try_flush(&self, what: &str, flush: impl Future<Output = Result<()>>) {
        if self.check_ours().is_ok()
            && let Err(error) = flush.await
        {
            self.counts.failed_flush();
            tell(&error, &format!("cannot flush {what}"));
        }
    }

    async fn extend_session(&self) -> Result<()> {
        let options = &self.facts.options;
        let sid = self.facts.sid();
        if options.read_only || options.heartbeat.is_zero() || sid == Sid(0) {
            return Ok(());
        }
        if !self.engine.extend_session(sid, self.expiry()).await? {
            warn!(sid = sid.0, "the session was cleaned up as stale: its locks are gone");
            self.put_session(sid).await?;
        }
        Ok(())
    }
}

/// That the store cannot be reached is told once, by the engine, and not with each thing that fails
/// for it.
fn tell(error: &Error, what: &str) {
    if matches!(error, Error::Unreachable { .. }) {
        debug!(%error, "{what}");
    } else {
        warn!(%error, "{what}");
    }
}
