//! Sessions: this client's registration in the store, from start to close.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::life::Phase;
use super::{Meta, host};
use crate::error::{Error, Result};
use crate::meta::record::changelog::LogOp;
use crate::meta::record::session::rfc3339;
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::record::{Counter, SessionInfo};
use crate::meta::{Sid, Timestamp};

/// A client may miss this many heartbeats before others clean up after it.
const MISSED_BEATS: u32 = 5;
/// How long a session without heartbeats lives.
const NEVER: Duration = Duration::from_hours(8760);
/// How often the setting is read again by a session without heartbeats.
pub(super) const DEFAULT_BEAT: Duration = Duration::from_secs(12);

/// How a client registers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// A new session.
    New,
    /// The session of a process that this one takes over from.
    Resume(Sid),
    /// None: for tools. What they remove while it is open here is gone at once.
    None,
}

impl Meta {
    /// Starts the client's own life: session record, quotas, heartbeat, flushing, background jobs.
    /// A read-only client never has a record. Answers the session's id, 0 without a record.
    pub async fn start(self: &Arc<Self>, registration: Registration) -> Result<Sid> {
        let mut phase = self.life.phase.lock().await;
        if *phase != Phase::Fresh {
            return Err(Error::bad_input("this client was started before"));
        }
        let read_only = self.facts.options.read_only;
        if !read_only {
            self.engine.prepare().await?;
        }
        if self.facts.setting().enable_acl {
            self.load_acls().await?;
        }
        self.reload_usage().await?;
        self.reload_quotas().await?;
        let sid = if read_only { Sid(0) } else { self.register(registration).await? };
        self.facts.put_sid(sid);
        self.start_heartbeat();
        if !read_only {
            self.begin_root_stat().await?;
            self.start_flushing();
            self.start_jobs();
        }
        *phase = Phase::Running;
        Ok(sid)
    }

    /// Ends the session: tasks stop, everything owed is told, locks are released and removed files
    /// that were still open go. Again on a closed client does nothing.
    pub async fn close(&self) -> Result<()> {
        self.end(false).await
    }

    /// As [`Meta::close`], but the session record, its locks and its removed files stay for the
    /// process that resumes the session.
    pub async fn hand_over(&self) -> Result<()> {
        self.end(true).await
    }

    /// Tells the store everything it was not told yet.
    pub async fn flush(&self) -> Result<()> {
        if self.facts.options.read_only {
            return Ok(());
        }
        self.check_ours()?;
        // One that fails does not keep the others from trying.
        let usage = self.flush_usage().await;
        let stats = self.flush_dir_stats().await;
        let quotas = self.flush_quotas().await;
        usage.and(stats).and(quotas)
    }

    /// Writes the session record, also again if others have cleaned it up.
    pub(super) async fn put_session(&self, sid: Sid) -> Result<()> {
        let (expire, info) = (self.expiry(), self.session_info().encode()?);
        self.engine.put_session(sid, expire, &info).await?;
        self.log_apart(LogOp::NewSession { sid, expire, info: &info }).await;
        Ok(())
    }

    /// The unix second at which others may clean up after this session.
    pub(super) fn expiry(&self) -> i64 {
        let heartbeat = self.facts.options.heartbeat;
        let lifetime = if heartbeat.is_zero() { NEVER } else { heartbeat * MISSED_BEATS };
        Timestamp::now().sec.saturating_add_unsigned(lifetime.as_secs().max(1))
    }

    async fn register(&self, registration: Registration) -> Result<Sid> {
        let sid = match registration {
            Registration::None | Registration::Resume(Sid(0)) => return Ok(Sid(0)),
            Registration::Resume(sid) => sid,
            Registration::New => self.new_sid().await?,
        };
        self.put_session(sid).await?;
        info!(sid = sid.0, version = CLIENT_VERSION, "session started");
        Ok(sid)
    }

    /// A counter that was restored from an old dump may name a session that is there.
    async fn new_sid(&self) -> Result<Sid> {
        loop {
            let sid = Sid(self.engine.add_counter(Counter::NextSession, 1).await?.cast_unsigned());
            if self.engine.session(sid).await?.is_none() {
                return Ok(sid);
            }
        }
    }

    fn session_info(&self) -> SessionInfo {
        let options = &self.facts.options;
        SessionInfo {
            version: CLIENT_VERSION.to_owned(),
            host_name: host::name(),
            ip_addrs: host::addresses(&options.network_interfaces),
            mount_point: options.mount_point.clone(),
            mount_time: rfc3339(Timestamp::now()),
            process_id: std::process::id(),
        }
    }

    async fn end(&self, keep_session: bool) -> Result<()> {
        let mut phase = self.life.phase.lock().await;
        if *phase == Phase::Closed {
            return Ok(());
        }
        self.life.end().await;
        self.finish_locks().await;
        let mut outcome = Ok(());
        // What stands in the place of a lost volume is not ours to change.
        if !self.facts.options.read_only && self.check_ours().is_ok() {
            outcome = self.wind_up(keep_session).await;
        }
        let closed = self.engine.close().await;
        *phase = Phase::Closed;
        outcome.and(closed)
    }

    async fn wind_up(&self, keep_session: bool) -> Result<()> {
        let sid = self.facts.sid();
        if sid == Sid(0) || keep_session {
            return self.flush().await;
        }
        let released = self.release(sid).await;
        let flushed = self.flush().await;
        // Something is left of the session: others find it by its record.
        if let Err(error) = &released {
            warn!(sid = sid.0, %error, "session is left for others to clean up");
            return released;
        }
        self.remove_session(sid).await?;
        self.facts.put_sid(Sid(0));
        info!(sid = sid.0, "session closed");
        flushed
    }
}
