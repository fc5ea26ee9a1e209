//! Records of the volume as a whole: its setting, counters, ACL rules and change log.

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::record::{AclRule, Attr, Counter};

/// The setting and the life of a volume.
#[async_trait]
pub trait SettingRecords: Send + Sync {
    /// Returns the bytes of the setting record, if the volume is formatted.
    async fn load_setting(&self) -> Result<Option<Vec<u8>>>;

    /// Prepares the store to hold a volume (SQL: tables, added columns and indexes).
    async fn prepare(&self) -> Result<()>;

    /// Writes the setting. On a store without one, also writes the root node and the initial
    /// counters. Writes the trash node if it is given and absent. Idempotent.
    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()>;

    /// Deletes every record of the volume.
    async fn wipe(&self) -> Result<()>;
}

#[async_trait]
pub trait CounterRecords: Send + Sync {
    /// Adds to a counter and returns the new value.
    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64>;

    async fn counter(&self, counter: Counter) -> Result<i64>;

    /// Claims a periodic job: if the stored time is at most `now - gap`, stores `now` and returns
    /// true. Of several clients, one gets true.
    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool>;
}

#[async_trait]
pub trait AclRecords: Send + Sync {
    /// Stores a rule under a new id and returns the id.
    async fn insert_acl(&self, rule: &AclRule) -> Result<u32>;

    async fn acls(&self) -> Result<Vec<(u32, AclRule)>>;
}

#[async_trait]
pub trait ChangeLogRecords: Send + Sync {
    /// Returns lines with versions later than `after`.
    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>>;

    /// Drops lines by age (written before unix second `before`) and by count (keeps the last
    /// `keep`).
    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()>;
}
