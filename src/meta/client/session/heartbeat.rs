//! The heartbeat: extends the session and reloads what other clients may have changed.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, warn};

use crate::error::{Error, Result};
use crate::meta::Sid;
use crate::meta::client::Meta;
use crate::meta::client::session::DEFAULT_HEARTBEAT;

const USAGE_PERIOD: Duration = Duration::from_secs(1);
const DIR_STATS_PERIOD: Duration = Duration::from_secs(1);
const QUOTAS_PERIOD: Duration = Duration::from_secs(3);

impl Meta {
    /// Extends the session and reloads setting, usage and quotas. A failure of one does not prevent
    /// the others.
    pub async fn heartbeat(&self) -> Result<()> {
        let session = self.extend_session().await;
        session.and(self.refresh().await)
    }

    /// Reloads the setting, usage and quotas, which other clients may have changed.
    pub async fn refresh(&self) -> Result<()> {
        self.reload().await?;
        self.context.parents.expire_all();
        let usage = self.reload_usage().await;
        let quotas = self.reload_quotas().await;
        usage.and(quotas)
    }

    pub(in crate::meta::client) fn start_heartbeat(self: &Arc<Self>) {
        let heartbeat = self.context.options.heartbeat;
        let period = if heartbeat.is_zero() { DEFAULT_HEARTBEAT } else { heartbeat };
        self.run_every(period, |meta| async move {
            if meta.check_not_lost().is_err() {
                return;
            }
            if let Err(error) = meta.heartbeat().await {
                meta.counts.missed_heartbeat();
                if meta.check_not_lost().is_err() {
                    error!(%error, "the volume is lost: unmount it");
                } else {
                    log_failure(&error, "heartbeat failed");
                }
            }
        });
    }

    pub(in crate::meta::client) fn start_flushing(self: &Arc<Self>) {
        self.run_every(USAGE_PERIOD, |meta| async move {
            meta.try_flush("usage", meta.flush_usage()).await;
        });
        self.run_every(DIR_STATS_PERIOD, |meta| async move {
            meta.try_flush("dir stats", meta.flush_dir_stats()).await;
        });
        self.run_every(QUOTAS_PERIOD, |meta| async move {
            meta.try_flush("quotas", meta.flush_quotas()).await;
        });
        self.run_on_notify(Arc::clone(&self.pending_charges.notify), |meta| async move {
            meta.try_flush("quotas", meta.settle_pending_charges()).await;
        });
    }

    /// Runs a flush and logs its failure. Whatever is not sent stays unsent, so only a lasting
    /// failure matters.
    async fn try_flush(&self, what: &str, flush: impl Future<Output = Result<()>>) {
        if self.check_not_lost().is_ok()
            && let Err(error) = flush.await
        {
            self.counts.failed_flush();
            log_failure(&error, &format!("cannot flush {what}"));
        }
    }

    async fn extend_session(&self) -> Result<()> {
        let options = &self.context.options;
        let sid = self.context.sid();
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

/// Logs a failure. The engine itself reports once that the store is unreachable, so that is only a
/// debug line here.
fn log_failure(error: &Error, what: &str) {
    if matches!(error, Error::Unreachable { .. }) {
        debug!(%error, "{what}");
    } else {
        warn!(%error, "{what}");
    }
}
