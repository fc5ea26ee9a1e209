//! The engine's traits on Redis.

use async_trait::async_trait;

use super::super::{
    AclRecords, BulkRecords, ChangeLogRecords, CounterRecords, Cursor, DelayedSlices, DeletedFile,
    Engine, EngineProperties, EntryPage, GarbageRecords, HeldLock, Listings, Part, ScanPage, Scans,
    SessionRecords, SettingRecords, Stored, StoredChunk, StoredPage, StoredSession, Txn,
    UsageRecords,
};
use super::RedisEngine;
use super::transaction::RedisTxn;
use crate::error::Result;
use crate::meta::record::{AclRule, Attr, Counter, DirStat, Quota, QuotaKey, SliceSize};
use crate::meta::{Ino, Sid};

#[async_trait]
impl Engine for RedisEngine {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn address(&self) -> &str {
        self.client.place()
    }

    fn properties(&self) -> EngineProperties {
        EngineProperties {
            usage_in_commit: true,
            entry_needs_node: false,
            // The Go client's batch size. A script blocks all other clients while it runs.
            batch: 500,
            sorted: false,
            refuses_empty_xattr: false,
        }
    }

    fn begin(&self) -> Box<dyn Txn> {
        Box::new(RedisTxn::new(self.client.clone(), self.keyspace.clone(), self.guesses.clone()))
    }

    async fn close(&self) -> Result<()> {
        self.client.close();
        Ok(())
    }
}

#[async_trait]
impl SettingRecords for RedisEngine {
    async fn load_setting(&self) -> Result<Option<Vec<u8>>> {
        self.stored_setting().await
    }

    /// Redis needs no preparation.
    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()> {
        self.format(json, root, trash).await
    }

    async fn wipe(&self) -> Result<()> {
        self.remove_all().await
    }
}

#[async_trait]
impl CounterRecords for RedisEngine {
    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64> {
        self.increase(counter, by).await
    }

    async fn counter(&self, counter: Counter) -> Result<i64> {
        self.count(counter).await
    }

    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        self.elect(counter, now, gap).await
    }
}

#[async_trait]
impl Listings for RedisEngine {
    /// The server may return an entry twice while it resizes the hash of a directory that changes
    /// during the listing: never within one page, and never an entry that does not exist.
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        self.entries(dir, cursor, limit).await
    }

    async fn chunk_indexes(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        self.existing_chunks(ino, length).await
    }

    async fn chunk_indexes_of(&self, files: &[(Ino, u64)]) -> Result<Vec<Vec<u32>>> {
        self.existing_chunks_of(files).await
    }
}

#[async_trait]
impl Scans for RedisEngine {
    async fn scan_chunks(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<StoredChunk>> {
        self.all_chunks(cursor, limit).await
    }

    async fn scan_delayed(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<DelayedSlices>> {
        self.all_delayed(cursor, limit).await
    }
}

#[async_trait]
impl SessionRecords for RedisEngine {
    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        self.save_session(sid, expire, info).await
    }

    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        self.refresh_session(sid, expire).await
    }

    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        self.one_session(sid).await
    }

    async fn sessions(&self) -> Result<Vec<StoredSession>> {
        self.all_sessions().await
    }

    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        self.expired_sessions(now, limit).await
    }

    async fn release_locks(&self, sid: Sid) -> Result<()> {
        self.drop_locks(sid).await
    }

    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        self.held_locks(sid).await
    }

    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>> {
        self.sustained_by(sid).await
    }

    async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.forget_session(sid).await
    }
}

#[async_trait]
impl GarbageRecords for RedisEngine {
    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>> {
        self.removed_files(before, limit).await
    }

    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>> {
        self.unreferenced(limit).await
    }

    async fn has_slice_ref(&self, slice: SliceSize) -> Result<bool> {
        self.has_ref(slice).await
    }

    async fn drop_single_ref(&self, slice: SliceSize) -> Result<()> {
        self.drop_zero_ref(slice).await
    }

    async fn drop_single_refs(&self) -> Result<()> {
        self.drop_zero_refs().await
    }

    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        self.delayed(before, limit).await
    }

    async fn detached(&self, before: i64) -> Result<Vec<Ino>> {
        self.detached_nodes(before).await
    }
}

#[async_trait]
impl AclRecords for RedisEngine {
    async fn insert_acl(&self, rule: &AclRule) -> Result<u32> {
        self.add_acl(rule).await
    }

    async fn acls(&self) -> Result<Vec<(u32, AclRule)>> {
        self.all_acls().await
    }
}

#[async_trait]
impl UsageRecords for RedisEngine {
    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        self.add_stats(deltas).await
    }

    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        self.save_stat(ino, stat).await
    }

    async fn clear_dir_stats(&self) -> Result<()> {
        self.drop_stats().await
    }

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        self.all_quotas().await
    }

    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        self.one_quota(key).await
    }

    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool> {
        self.save_quota(key, quota, usage).await
    }

    async fn remove_quota(&self, key: QuotaKey) -> Result<()> {
        self.drop_quota(key).await
    }

    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        self.add_usage(deltas).await
    }

    async fn clear_owner_quotas(&self) -> Result<()> {
        self.drop_owner_quotas().await
    }
}

#[async_trait]
impl ChangeLogRecords for RedisEngine {
    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        self.log_lines(after, limit).await
    }

    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        self.trim_log(before, keep).await
    }
}

#[async_trait]
impl BulkRecords for RedisEngine {
    async fn is_empty(&self) -> Result<bool> {
        self.holds_nothing().await
    }

    async fn put_stored(&self, records: Vec<Stored>) -> Result<()> {
        self.write_stored(records).await
    }

    async fn finish_load(&self, setting: &[u8]) -> Result<()> {
        self.end_load(setting).await
    }

    async fn scan_stored(&self, part: Part, cursor: &Cursor) -> Result<StoredPage> {
        self.stored_page(part, cursor).await
    }
}
