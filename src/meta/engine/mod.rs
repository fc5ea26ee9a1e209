//! Engines: how records are stored in Redis, ordered KV stores and SQLite, byte for byte as
//! JuiceFS does.
//!
//! An engine knows keys, encodings and transactions of its server. It does not know what an
//! operation means: it reads [`Key`]s, commits [`Change`]s if every guarded read still holds, and
//! offers the few listings and single-record calls that need no plan.

mod address;
mod change;
mod key;
pub mod kv;
pub mod redis;
pub mod sqlite;
pub mod tikv;

use async_trait::async_trait;
use bytes::Bytes;

pub use address::{Env, connect, connect_with, masked};
pub use change::Change;
pub use key::{Found, Key, Record};

use super::record::{AclRule, Attr, Counter, DirStat, Entry, Quota, QuotaKey, SliceSize};
use super::{Ino, Name, Sid};
use crate::error::{Error, Result};

/// What a commit answers when it does not take effect, or may not have.
#[derive(Debug)]
pub enum CommitError {
    /// A guarded record changed: nothing was applied; plan again.
    Conflict,
    /// Nothing was applied.
    Failed(Error),
    /// The request was sent and its answer was lost: it may have been applied.
    Unknown(Error),
}

/// One planned change set in the making: guarded reads, then one commit.
///
/// Reads see one state at least as new as the begin of the transaction; they may be from different
/// moments, since the commit checks that all guarded ones hold together.
#[async_trait]
pub trait Txn: Send {
    /// Reads all keys in as few round trips as the store allows (on Redis: one), in order. Each
    /// becomes a guard. [`Key::Lookup`] guards the entry and the attr that it found.
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>>;

    /// As [`Txn::read`], without guarding.
    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>>;

    /// What the keys most likely hold, without asking the store: an attr is as this client saw it
    /// last, and a name is free. Guarded as if it had been read, so that a commit that goes through
    /// proves it; nothing else does. `None`, and no guards, if there is no telling.
    fn suppose(&mut self, keys: &[Key]) -> Option<Vec<Record>> {
        let _ = keys;
        None
    }

    /// Takes entries of a directory for what a listing has told, without asking the store, guarded as
    /// in [`Txn::suppose`]. False, and no guards, if they have to be read.
    fn suppose_listed(&mut self, dir: Ino, listed: &[(Name, Entry)]) -> bool {
        let _ = (dir, listed);
        false
    }

    /// Applies all changes atomically, in order, if every guarded record is as it was read.
    /// Answers one number per change: for [`Change::AppendSlices`] the record count of the chunk
    /// afterwards (0 if skipped), for [`Change::AddSliceRef`] the references left (real count;
    /// 0 or less = delete the objects), 0 for all others.
    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError>;
}

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    pub sid: Sid,
    /// Unix seconds; past = stale.
    pub expire: i64,
    /// JSON of [`crate::meta::record::SessionInfo`]; empty for a legacy session.
    pub info: Vec<u8>,
}

/// A file whose node is gone and whose chunks are still to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedFile {
    pub ino: Ino,
    pub length: u64,
    /// Unix seconds of removal.
    pub at: i64,
}

/// A list of slices replaced by compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayedSlices {
    /// The slice that replaced them; part of the record's key.
    pub id: super::SliceId,
    /// Unix seconds of the compaction; part of the record's key.
    pub at: i64,
    pub slices: Vec<SliceSize>,
}

/// One lock of an inode as `status` and `info` show it is read through [`Key::Flocks`]; sessions
/// list what they hold through [`Engine::locks_of`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    pub ino: Ino,
    pub owner: super::LockOwner,
    pub kind: HeldKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldKind {
    Flock(super::record::LockKind),
    Plock(Vec<super::record::PlockRange>),
}

/// Where a listing goes on. Engines choose what it means; callers only hand it back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cursor {
    #[default]
    Start,
    /// After this name, be it a good one or not, for stores that keep entries in order.
    After(Bytes),
    /// A scan position, for stores that do not.
    Scan(u64),
    End,
}

/// Some entries of a directory, and where the next ones are.
#[derive(Debug, Clone, Default)]
pub struct EntryPage {
    pub entries: Vec<(Name, Entry)>,
    /// What is stored among them and cannot be an entry.
    pub odd: Vec<OddEntry>,
    pub next: Cursor,
}

/// An entry whose name is none or whose record is damaged. It can be removed, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddEntry {
    pub name: Bytes,
    /// None if the record cannot be read.
    pub entry: Option<Entry>,
}

impl EntryPage {
    pub fn end() -> Self {
        Self { next: Cursor::End, ..Self::default() }
    }

    /// Adds what a store holds under a name.
    pub fn add(&mut self, name: Bytes, entry: Option<Entry>) {
        match (Name::from_bytes(name.clone()), entry) {
            (Ok(name), Some(entry)) => self.entries.push((name, entry)),
            (_, entry) => self.odd.push(OddEntry { name, entry }),
        }
    }
}

/// How this engine differs where operations or bookkeeping must know.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// [`Change::AddUsage`] is applied in the commit; otherwise the caller collects and flushes it
    /// through [`Engine::add_counter`].
    pub usage_in_commit: bool,
    /// An entry whose node is missing answers `NotFound` (SQL) instead of a bare type.
    pub entry_needs_node: bool,
    /// Entries removed or cloned by one commit in a batch.
    pub batch: usize,
    /// Listings come in name order.
    pub sorted: bool,
    /// An empty xattr value cannot be stored (TiKV).
    pub refuses_empty_xattr: bool,
}

/// One metadata store holding one volume.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// The scheme, as `status` and logs name it: `redis`, `sqlite3`, `tikv`, `memkv`.
    fn name(&self) -> &'static str;
    /// The address with every secret masked, for errors and logs.
    fn place(&self) -> &str;
    fn traits(&self) -> Traits;

    fn begin(&self) -> Box<dyn Txn>;

    /// Unguarded reads outside any transaction, one round trip where the store can.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Record>> {
        self.begin().peek(keys).await
    }

    // The setting and a fresh volume.

    /// The setting record's bytes, if the volume is formatted.
    async fn load_setting(&self) -> Result<Option<Vec<u8>>>;

    /// Makes the store ready to hold a volume (SQL: tables, added columns and indexes).
    async fn prepare(&self) -> Result<()>;

    /// Writes the setting; on a store without one also the root node and the initial counters;
    /// the trash node if given and absent. Idempotent.
    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()>;

    /// Deletes every record of the volume.
    async fn wipe(&self) -> Result<()>;

    // Counters.

    /// Adds and answers the new value.
    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64>;
    async fn counter(&self, counter: Counter) -> Result<i64>;
    /// Election: if the stored time is at most `now - gap`, stores `now` and answers true.
    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool>;

    // Directories.

    /// Up to about `limit` entries from `cursor` on (a store may answer fewer or some more; only
    /// [`Cursor::End`] ends the listing). An entry there during the whole listing is seen once.
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage>;

    // Chunks.

    /// Indexes of all chunks of `ino` that have records, ascending; on Redis only those below
    /// `chunks_of(length)`, by existence, since it keeps no list of them.
    async fn chunk_indexes(&self, ino: Ino, length: u64) -> Result<Vec<u32>>;

    /// As [`Engine::chunk_indexes`], of many files.
    async fn chunk_indexes_of(&self, files: &[(Ino, u64)]) -> Result<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        for (ino, length) in files {
            all.push(self.chunk_indexes(*ino, *length).await?);
        }
        Ok(all)
    }

    // Sessions.

    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()>;
    /// Moves the expiry; false if the session is gone.
    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool>;
    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>>;
    async fn sessions(&self) -> Result<Vec<StoredSession>>;
    /// At most `limit` sessions whose expiry lies before `now` (legacy ones: 5 min silent).
    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>>;
    /// Drops every lock of the session.
    async fn release_locks(&self, sid: Sid) -> Result<()>;
    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>>;
    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>>;
    /// Removes the session record itself, when nothing hangs on it any more.
    async fn remove_session(&self, sid: Sid) -> Result<()>;

    // Garbage.

    /// Deleted files removed at or before `before`.
    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>>;
    /// Slices whose reference count fell below one.
    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>>;
    /// Whether the slice has a reference record of its own. An engine that cannot tell "not tracked"
    /// from "one reference" answers true where in doubt: nothing is deleted on a true.
    async fn tracks(&self, slice: SliceSize) -> Result<bool> {
        let records = self.read(&[Key::SliceRef(slice.id, slice.size)]).await?;
        Ok(!matches!(records.first(), Some(Record::SliceRef(refs)) if *refs <= 0))
    }
    /// Removes the slice's tracked record if it says "one reference" where absence says the same
    /// (R, K); one left behind goes with [`Engine::drop_single_refs`].
    async fn drop_single_ref(&self, slice: SliceSize) -> Result<()> {
        let _ = slice;
        Ok(())
    }
    /// Removes tracked records that say "one reference" where absence says the same (R, K).
    async fn drop_single_refs(&self) -> Result<()>;
    /// Delayed slice lists written at or before `before`.
    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>>;
    /// Detached nodes added at or before `before`.
    async fn detached(&self, before: i64) -> Result<Vec<Ino>>;

    // ACL rules.

    async fn insert_acl(&self, rule: &AclRule) -> Result<u32>;
    async fn acls(&self) -> Result<Vec<(u32, AclRule)>>;

    // Usage of directories and quotas, kept beside the operations.

    /// Adds to each directory's stat; answers those whose record is missing or would turn
    /// negative (left alone): the caller recounts them.
    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>>;
    /// Writes a directory's stat, if the directory is still there: nobody would remove it later.
    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()>;
    /// Empties dir stats before they are switched on.
    async fn clear_dir_stats(&self) -> Result<()>;

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>>;
    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>>;
    /// Writes limits and, if `usage` is given, usage; answers whether the quota is new.
    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool>;
    /// Directory: removes the record. User, group: the limits become -1, usage stays.
    async fn remove_quota(&self, key: QuotaKey) -> Result<()>;
    /// Adds (space, inodes) to each quota's usage.
    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()>;
    /// Empties user and group usage before they are switched on.
    async fn clear_owner_quotas(&self) -> Result<()>;

    // Change log.

    /// Lines with their versions, those later than version `after`.
    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>>;
    /// Drops lines by age (written before unix second `before`) and count (keep the last `keep`).
    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()>;

    /// Flushes what the engine buffers and closes its connections.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
