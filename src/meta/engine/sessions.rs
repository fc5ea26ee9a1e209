//! Sessions with the locks and sustained files that belong to them.

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::record::{LockKind, PlockRange};
use crate::meta::{Ino, LockOwner, Sid};

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    pub sid: Sid,
    /// Unix seconds; a session whose expiry has passed is stale.
    pub expire: i64,
    /// JSON of [`crate::meta::record::SessionInfo`]; empty for a legacy session.
    pub info: Vec<u8>,
}

/// A lock that a session holds. The locks of one inode are read through [`super::Key::Flocks`] and
/// [`super::Key::Plocks`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    pub ino: Ino,
    pub owner: LockOwner,
    pub kind: HeldKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldKind {
    Flock(LockKind),
    Plock(Vec<PlockRange>),
}

#[async_trait]
pub trait SessionRecords: Send + Sync {
    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()>;

    /// Moves the expiry. Returns false if the session does not exist.
    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool>;

    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>>;

    async fn sessions(&self) -> Result<Vec<StoredSession>>;

    /// Returns at most `limit` sessions that expired before `now` (legacy ones: 5 minutes without
    /// a heartbeat).
    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>>;

    /// Removes every lock of the session.
    async fn release_locks(&self, sid: Sid) -> Result<()>;

    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>>;

    /// Returns the inodes that the session keeps alive although they have no name any more.
    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>>;

    /// Removes the session record itself. The caller has removed its locks and sustained files.
    async fn remove_session(&self, sid: Sid) -> Result<()>;
}
