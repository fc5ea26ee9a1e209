//! Engines: how records are stored in Redis, ordered key-value stores and SQLite, byte for byte as
//! JuiceFS stores them.
//!
//! An engine knows the keys, encodings and transactions of its server. It does not know what an
//! operation means: it reads [`Key`]s, commits [`Change`]s if every guarded record is unchanged,
//! and provides the few listings and single-record calls that need no plan.

mod address;
mod bulk;
mod change;
mod garbage;
mod key;
pub mod kv;
mod listing;
pub mod redis;
mod scan;
mod sessions;
pub mod sqlite;
pub mod tikv;
mod transaction;
mod usage;
mod volume;

use async_trait::async_trait;

pub use address::{Env, connect, connect_with, masked};
pub use bulk::{BulkRecords, Part, Stored, StoredPage};
pub use change::Change;
pub use garbage::{DelayedSlices, DeletedFile, GarbageRecords};
pub use key::{Found, Key, Record};
pub use listing::{Cursor, EntryPage, InvalidEntry, Listings};
pub use scan::{ScanPage, Scans, StoredChunk};
pub use sessions::{HeldKind, HeldLock, SessionRecords, StoredSession};
pub use transaction::{CommitError, Txn};
pub use usage::UsageRecords;
pub use volume::{AclRecords, ChangeLogRecords, CounterRecords, SettingRecords};

use crate::error::Result;

/// How engines differ where operations or accounting must know.
#[derive(Debug, Clone, Copy)]
pub struct EngineProperties {
    /// [`Change::AddUsage`] is applied in the commit; otherwise the caller accumulates it and
    /// flushes it with [`CounterRecords::add_counter`].
    pub usage_in_commit: bool,
    /// Looking up an entry whose node is missing returns `NotFound` (SQL) instead of a bare type.
    pub entry_needs_node: bool,
    /// How many entries one commit removes or clones.
    pub batch: usize,
    /// Listings come in name order.
    pub sorted: bool,
    /// An empty xattr value cannot be stored (TiKV).
    pub refuses_empty_xattr: bool,
}

/// One metadata store holding one volume.
#[async_trait]
pub trait Engine:
    SettingRecords
    + CounterRecords
    + Listings
    + Scans
    + SessionRecords
    + GarbageRecords
    + AclRecords
    + UsageRecords
    + ChangeLogRecords
    + BulkRecords
    + 'static
{
    /// The scheme, as `status` and logs name it: `redis`, `sqlite3`, `tikv`, `memkv`.
    fn name(&self) -> &'static str;

    /// The address with every secret masked, for errors and logs.
    fn address(&self) -> &str;

    fn properties(&self) -> EngineProperties;

    /// Starts a transaction.
    fn begin(&self) -> Box<dyn Txn>;

    /// Reads without guards, outside any transaction; one round trip where the store allows it.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Record>> {
        self.begin().peek(keys).await
    }

    /// Flushes buffered writes and closes the connections.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
