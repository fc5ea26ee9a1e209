//! Stale sessions: releases the locks and removed files of clients that did not close their
//! session.

use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Sid, Timestamp};

/// Sessions cleaned up in one run.
const LIMIT: usize = 1000;

impl Meta {
    /// Cleans up after expired sessions; returns how many. One that fails is retried in the next
    /// run.
    pub async fn clean_stale_sessions(&self) -> Result<u64> {
        let now = Timestamp::now().sec;
        let mut cleaned = 0;
        for sid in self.engine.stale_sessions(now, LIMIT).await? {
            if self.is_closing() {
                break;
            }
            // This client's own heartbeat is late, but it is alive.
            if sid == self.context.sid() {
                continue;
            }
            // It may have been extended since it was listed.
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

    pub(in crate::meta::client) async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.engine.remove_session(sid).await?;
        self.log_separately(LogOp::CleanSession { sid }).await;
        Ok(())
    }

    /// Releases everything that a session holds: its locks, and files it removed while they were
    /// open.
    pub(in crate::meta::client) async fn release(&self, sid: Sid) -> Result<()> {
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
