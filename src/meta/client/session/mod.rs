//! Sessions: this client's registration in the store, from start to close.

mod connect;
mod format;
mod heartbeat;
mod host;
pub mod lifecycle;
mod stale_sessions;

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::client::session::lifecycle::Phase;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::session::rfc3339;
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::record::{Counter, SessionInfo};
use crate::meta::{Sid, Timestamp};

/// The number of heartbeats that a client may miss before others clean up after it.
const MISSED_HEARTBEATS: u32 = 5;
/// How long a session lasts that was handed over and is not resumed.
const HAND_OVER_LIFETIME: Duration = Duration::from_mins(10);
/// How long a session without heartbeats lasts.
const LIFETIME_WITHOUT_HEARTBEAT: Duration = Duration::from_hours(8760);
/// How often a session without heartbeats reloads the setting.
pub(in crate::meta::client) const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(12);

/// How a client registers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// A new session.
    New,
    /// The session of an earlier process that this one replaces.
    Resume(Sid),
    /// No session: for tools. A file that they remove is deleted at once even if it is open here.
    None,
}

impl Meta {
    /// Starts the client: session record, quotas, heartbeat, flushing, periodic jobs. A read-only
    /// client never has a session record. Returns the session's id, 0 without a record.
    pub async fn start(self: &Arc<Self>, registration: Registration) -> Result<Sid> {
        let mut phase = self.lifecycle.phase.lock().await;
        if *phase != Phase::New {
            return Err(Error::bad_input("this client has already been started"));
        }
        let read_only = self.context.options.read_only;
        if !read_only {
            self.engine.prepare().await?;
        }
        if self.context.setting().enable_acl {
            self.load_acls().await?;
        }
        self.reload_usage().await?;
        self.reload_quotas().await?;
        let sid = if read_only { Sid(0) } else { self.register(registration).await? };
        self.context.put_sid(sid);
        self.start_heartbeat();
        if !read_only {
            self.ensure_root_stat().await?;
            self.start_flushing();
            self.start_jobs();
        }
        *phase = Phase::Running;
        Ok(sid)
    }

    /// Ends the session: stops tasks, sends all unsent usage, releases locks and deletes removed
    /// files that were still open. Does nothing on a closed client.
    pub async fn close(&self) -> Result<()> {
        self.shut_down(false).await
    }

    /// As [`Meta::close`], but keeps the session record, its locks and its removed files for the
    /// process that resumes the session.
    pub async fn hand_over(&self) -> Result<()> {
        self.shut_down(true).await
    }

    /// Sends all unsent usage to the store.
    pub async fn flush(&self) -> Result<()> {
        if self.context.options.read_only {
            return Ok(());
        }
        self.check_not_lost()?;
        // A failure of one does not prevent the others.
        let usage = self.flush_usage().await;
        let stats = self.flush_dir_stats().await;
        let quotas = self.flush_quotas().await;
        usage.and(stats).and(quotas)
    }

    /// Writes the session record, initially or after others have cleaned it up.
    pub(in crate::meta::client) async fn put_session(&self, sid: Sid) -> Result<()> {
        let (expire, info) = (self.expiry(), self.session_info().encode()?);
        self.engine.put_session(sid, expire, &info).await?;
        self.log_separately(LogOp::NewSession { sid, expire, info: &info }).await;
        Ok(())
    }

    /// The unix second at which others may clean up after this session.
    pub(in crate::meta::client) fn expiry(&self) -> i64 {
        let heartbeat = self.context.options.heartbeat;
        let lifetime = if heartbeat.is_zero() {
            LIFETIME_WITHOUT_HEARTBEAT
        } else {
            heartbeat * MISSED_HEARTBEATS
        };
        Timestamp::now().sec.saturating_add_unsigned(lifetime.as_secs().max(1))
    }

    async fn register(&self, registration: Registration) -> Result<Sid> {
        let sid = match registration {
            Registration::None | Registration::Resume(Sid(0)) => return Ok(Sid(0)),
            Registration::Resume(sid) => {
                if self.engine.session(sid).await?.is_none() {
                    warn!(
                        sid = sid.0,
                        "the session was cleaned up before it was resumed: its locks and removed files are gone"
                    );
                }
                sid
            }
            Registration::New => self.new_sid().await?,
        };
        self.put_session(sid).await?;
        info!(sid = sid.0, version = CLIENT_VERSION, "session started");
        Ok(sid)
    }

    /// Allocates a session id. A counter restored from an old dump may return the id of an existing
    /// session.
    async fn new_sid(&self) -> Result<Sid> {
        loop {
            let sid = Sid(self.engine.add_counter(Counter::NextSession, 1).await?.cast_unsigned());
            if self.engine.session(sid).await?.is_none() {
                return Ok(sid);
            }
        }
    }

    fn session_info(&self) -> SessionInfo {
        let options = &self.context.options;
        SessionInfo {
            version: CLIENT_VERSION.to_owned(),
            host_name: host::name(),
            ip_addrs: host::addresses(&options.network_interfaces),
            mount_point: options.mount_point.clone(),
            mount_time: rfc3339(Timestamp::now()),
            process_id: std::process::id(),
        }
    }

    async fn shut_down(&self, keep_session: bool) -> Result<()> {
        let mut phase = self.lifecycle.phase.lock().await;
        if *phase == Phase::Closed {
            return Ok(());
        }
        self.lifecycle.stop_tasks().await;
        self.finish_locks().await;
        let mut outcome = Ok(());
        // If the volume is lost, the store may hold another one, which must not be changed.
        if !self.context.options.read_only && self.check_not_lost().is_ok() {
            outcome = self.finish_session(keep_session).await;
        }
        let closed = self.engine.close().await;
        *phase = Phase::Closed;
        outcome.and(closed)
    }

    async fn finish_session(&self, keep_session: bool) -> Result<()> {
        let sid = self.context.sid();
        if sid == Sid(0) || keep_session {
            let flushed = self.flush().await;
            if sid != Sid(0) && !self.context.options.heartbeat.is_zero() {
                let until =
                    Timestamp::now().sec.saturating_add_unsigned(HAND_OVER_LIFETIME.as_secs());
                self.engine.extend_session(sid, until.max(self.expiry())).await?;
            }
            return flushed;
        }
        let released = self.release(sid).await;
        let flushed = self.flush().await;
        // Something of the session is left: others find it by its record.
        if let Err(error) = &released {
            warn!(sid = sid.0, %error, "cannot clean up the session: other clients will do so after it expires");
            return released;
        }
        self.remove_session(sid).await?;
        self.context.put_sid(Sid(0));
        info!(sid = sid.0, "session closed");
        flushed
    }
}
