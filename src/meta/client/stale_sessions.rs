//! Sessions whose client went away without closing them: their locks and removed files go.

use tracing::{info, warn};

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::record::changelog::LogOp;
use crate::meta::{Sid, Timestamp};

/// Sessions cleaned up in one go.
const LIMIT: usize = 1000;

impl Meta {
    /// Cleans up after sessions that have expired; answers how many. One that fails is left for the
    /// next time.
    pub async fn clean_stale_sessions(&self) -> Result<u64> {
        let now = Timestamp::now().sec;
        let mut cleaned = 0;
        for sid in self.engine.stale_sessions(now, LIMIT).await? {
            if self.is_closing() {
                break;
            }
            // Our own heartbeat is late, not dead.
            if sid == self.facts.sid() {
                continue;
            }
            // It may have come back since it was listed.
            if self.engine.session(sid).await?.is_some_and(|session| session.expire > now) {
                continue;
            }
            match self.clean_session(sid).await {
                Ok(()) => {
                    info!(sid = sid.0, "cleaned up a stale session");
                    cleaned += 1;
                }
                Err(error) => warn!(sid = sid.0, %error, "cannot clean up a stale session"),
            }
        }
        Ok(cleaned)
    }

    async fn clean_session(&self, sid: Sid) -> Result<()> {
        self.release(sid).await?;
        self.remove_session(sid).await
    }

    pub(super) async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.engine.remove_session(sid).await?;
        self.log_apart(LogOp::CleanSession { sid }).await;
        Ok(())
    }

    /// Releases all that a session holds: its locks, and the files it removed while they were open.
    pub(super) async fn release(&self, sid: Sid) -> Result<()> {
        let mut outcome = self.engine.release_locks(sid).await;
        for ino in self.engine.sustained(sid).await? {
            let dropped = match self.drop_sustained(sid, ino).await {
                Err(Error::NotFound) => Ok(()),
                other => other,
            };
            outcome = outcome.and(dropped);
        }
        outcome
    }
}
