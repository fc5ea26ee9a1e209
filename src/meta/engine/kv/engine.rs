//! The engine over a key-value store: the table of what does what.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::keys::{StoreKey, prefix};
use super::read::{Unguarded, records};
use super::store::{KvStore, Scan};
use super::txn::{KvTransaction, Order};
use crate::error::{Error, Result};
use crate::meta::engine::{
    Cursor, DelayedSlices, DeletedFile, Engine, EntryPage, HeldLock, Key, Record, StoredSession,
    Traits, Txn,
};
use crate::meta::record::{AclRule, Attr, Counter, DirStat, Entry, Quota, QuotaKey, SliceSize};
use crate::meta::{Ino, Name, Sid};

/// One volume in an ordered key-value store.
pub struct KvEngine {
    pub(super) store: Arc<dyn KvStore>,
    order: Arc<Order>,
}

impl KvEngine {
    pub fn new(store: Arc<dyn KvStore>) -> Self {
        let order = Arc::new(Order::new(store.traits().seats));
        Self { store, order }
    }

    /// The newest value of one key.
    pub(super) async fn one(&self, key: &StoreKey) -> Result<Option<Bytes>> {
        Ok(self.store.get(&[key.encode()]).await?.pop().flatten())
    }

    async fn page(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        let prefix = prefix::entries(dir);
        let limit = limit.max(1);
        let mut scan = Scan::prefix(prefix.clone()).limit(limit);
        match cursor {
            Cursor::Start => {}
            Cursor::After(name) => {
                let name = Name::unchecked(name.clone());
                scan = scan.after(&StoreKey::Entry(dir, name).encode());
            }
            Cursor::End => return Ok(EntryPage::end()),
            Cursor::Scan(_) => {
                return Err(Error::bad_input("a listing in name order has no scan position"));
            }
        }
        let pairs = self.store.scan(&scan).await?;
        let is_last = pairs.len() < limit;
        let mut page = EntryPage::end();
        for (key, value) in pairs {
            let name = Bytes::from(key).slice(prefix.len()..);
            if !is_last {
                page.next = Cursor::After(name.clone());
            }
            page.add(name, Entry::decode(&value).ok());
        }
        Ok(page)
    }
}

#[async_trait]
impl Engine for KvEngine {
    fn name(&self) -> &'static str {
        self.store.traits().name
    }

    fn place(&self) -> &str {
        self.store.place()
    }

    fn traits(&self) -> Traits {
        let store = self.store.traits();
        Traits {
            usage_in_commit: false,
            entry_needs_node: false,
            batch: store.batch,
            sorted: true,
            refuses_empty_xattr: store.refuses_empty_values,
        }
    }

    fn begin(&self) -> Box<dyn Txn> {
        Box::new(KvTransaction::new(self.store.clone(), self.order.clone()))
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Record>> {
        records(&mut Unguarded(self.store.as_ref()), keys).await
    }

    async fn load_setting(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.one(&StoreKey::Setting).await?.map(Vec::from))
    }

    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()> {
        self.write_setting(json, root, trash).await
    }

    async fn wipe(&self) -> Result<()> {
        self.store.wipe().await
    }

    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64> {
        self.add_to_counter(counter, by).await
    }

    async fn counter(&self, counter: Counter) -> Result<i64> {
        self.counter_value(counter).await
    }

    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        self.elect(counter, now, gap).await
    }

    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        self.page(dir, cursor, limit).await
    }

    async fn chunk_indexes(&self, ino: Ino, _length: u64) -> Result<Vec<u32>> {
        let keys = self.keys_under(&prefix::chunks(ino), |_| true).await?;
        let indexes = keys.iter().filter_map(|key| match StoreKey::decode(key) {
            Some(StoreKey::Chunk(_, index)) => Some(index),
            _ => None,
        });
        Ok(indexes.collect())
    }

    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        self.write_session(sid, expire, info).await
    }

    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        self.move_session_expiry(sid, expire).await
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
        self.locks_held_by(sid).await
    }

    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>> {
        self.sustained_by(sid).await
    }

    async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.drop_session(sid).await
    }

    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>> {
        self.files_deleted(before, limit).await
    }

    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>> {
        self.unreferenced_slices(limit).await
    }

    async fn tracks(&self, slice: SliceSize) -> Result<bool> {
        self.has_ref(slice).await
    }

    async fn drop_single_ref(&self, slice: SliceSize) -> Result<()> {
        self.drop_zero_ref(slice).await
    }

    async fn drop_single_refs(&self) -> Result<()> {
        self.drop_zero_refs().await?;
        // The hourly job of one elected client: what the store leaves to its clients goes with it.
        self.store.drop_old_versions().await
    }

    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        self.slices_delayed(before, limit).await
    }

    async fn detached(&self, before: i64) -> Result<Vec<Ino>> {
        self.nodes_detached(before).await
    }

    async fn insert_acl(&self, rule: &AclRule) -> Result<u32> {
        self.add_acl(rule).await
    }

    async fn acls(&self) -> Result<Vec<(u32, AclRule)>> {
        self.all_acls().await
    }

    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        self.add_to_dir_stats(deltas).await
    }

    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        self.write_dir_stat(ino, stat).await
    }

    async fn clear_dir_stats(&self) -> Result<()> {
        self.drop_dir_stats().await
    }

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        self.all_quotas().await
    }

    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        self.one_quota(key).await
    }

    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool> {
        self.write_quota(key, quota, usage).await
    }

    async fn remove_quota(&self, key: QuotaKey) -> Result<()> {
        self.drop_quota(key).await
    }

    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        self.add_to_quotas(deltas).await
    }

    async fn clear_owner_quotas(&self) -> Result<()> {
        self.drop_owner_quotas().await
    }

    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        self.log_after(after, limit).await
    }

    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        self.trim_log(before, keep).await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
