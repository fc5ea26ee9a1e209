//! The SQLite engine: JuiceFS's own tables in one database file, which the Go client may have open
//! at the same time.
//!
//! Reads run on a few threads with a connection each, on a snapshot; commits go to one thread that
//! does them in groups. Each file below owns the statements of some tables.

mod acl;
mod address;
mod apply;
mod chunk;
mod counter;
mod db;
mod entry;
mod fault;
mod garbage;
mod link;
mod lock;
mod log;
mod node;
mod queue;
mod read;
mod row;
mod schema;
mod session;
mod setting;
mod slice;
mod tables;
#[cfg(test)]
mod tests;
mod txn;
mod usage;
mod writer;
mod xattr;

use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;

use self::address::Address;
use self::link::Link;
use self::txn::SqliteTxn;
use super::{
    Cursor, DelayedSlices, DeletedFile, Engine, EntryPage, HeldLock, StoredSession, Traits, Txn,
};
use crate::error::{Error, Result};
use crate::meta::record::{AclRule, Attr, Counter, DirStat, Quota, QuotaKey, SliceSize};
use crate::meta::{Ino, Sid};
use crate::policy::Policy;
use crate::sync::Mutex;

/// Entries removed or cloned by one commit: it bounds how long the database is locked.
const BATCH: usize = 1000;
/// Dir stats flushed in one transaction.
const STATS_AT_ONCE: usize = 1000;

pub struct Sqlite {
    link: Arc<Link>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Opens the database that a `sqlite3://` address names; a file that is not there is made.
pub async fn connect(url: &str, policy: &Arc<Policy>) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Sqlite::open(url, Arc::clone(policy)).await?))
}

impl Sqlite {
    async fn open(url: &str, policy: Arc<Policy>) -> Result<Self> {
        let url = url.to_owned();
        blocking(move || {
            let address = Address::parse(&url)?;
            policy.check_local("metaurl", &address.path)?;
            let (link, threads) = Link::open(&address)?;
            Ok(Self { link: Arc::new(link), threads: Mutex::new(threads) })
        })
        .await?
    }
}

/// A limit as SQL has it.
fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| fault::engine("sqlite3", format!("a thread failed: {error}")))
}

#[async_trait]
impl Engine for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite3"
    }

    fn place(&self) -> &str {
        self.link.place()
    }

    fn traits(&self) -> Traits {
        Traits {
            usage_in_commit: true,
            entry_needs_node: true,
            batch: BATCH,
            sorted: true,
            refuses_empty_xattr: false,
        }
    }

    fn begin(&self) -> Box<dyn Txn> {
        Box::new(SqliteTxn::new(Arc::clone(&self.link)))
    }

    async fn load_setting(&self) -> Result<Option<Vec<u8>>> {
        self.link.read(|db| db.snapshot(|| setting::load(db))).await
    }

    async fn prepare(&self) -> Result<()> {
        // Looking first spares the lock on a database that needs nothing.
        if self.link.read(|db| db.snapshot(|| schema::missing(db))).await?.is_empty() {
            return Ok(());
        }
        self.link.change(schema::complete).await
    }

    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()> {
        let (json, root, trash) = (json.to_vec(), root.clone(), trash.cloned());
        self.link.change(move |db| setting::store(db, &json, &root, trash.as_ref())).await
    }

    async fn wipe(&self) -> Result<()> {
        self.link.change(schema::drop_all).await
    }

    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64> {
        self.link.change(move |db| counter::add(db, counter, by)).await
    }

    async fn counter(&self, counter: Counter) -> Result<i64> {
        self.link.read(move |db| counter::value(db, counter)).await
    }

    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        self.link.change(move |db| counter::claim(db, counter, now, gap)).await
    }

    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        let cursor = cursor.clone();
        self.link.read(move |db| entry::list(db, dir, &cursor, limit)).await
    }

    async fn chunk_indexes(&self, ino: Ino, _length: u64) -> Result<Vec<u32>> {
        self.link.read(move |db| chunk::indexes(db, ino)).await
    }

    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        let info = info.to_vec();
        self.link.change(move |db| session::put(db, sid, expire, &info)).await
    }

    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        self.link.change(move |db| session::extend(db, sid, expire)).await
    }

    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        self.link.read(move |db| session::one(db, sid)).await
    }

    async fn sessions(&self) -> Result<Vec<StoredSession>> {
        self.link.read(|db| db.snapshot(|| session::all(db))).await
    }

    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        self.link.read(move |db| session::stale(db, now, limit)).await
    }

    async fn release_locks(&self, sid: Sid) -> Result<()> {
        self.link.change(move |db| lock::release(db, sid)).await
    }

    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        self.link.read(move |db| db.snapshot(|| lock::held(db, sid))).await
    }

    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>> {
        self.link.read(move |db| session::sustained(db, sid)).await
    }

    async fn remove_session(&self, sid: Sid) -> Result<()> {
        self.link.change(move |db| session::remove(db, sid)).await
    }

    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>> {
        self.link.read(move |db| garbage::files(db, before, rows(limit))).await
    }

    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>> {
        self.link.read(move |db| slice::dead(db, rows(limit))).await
    }

    /// Every slice has its row here.
    async fn drop_single_refs(&self) -> Result<()> {
        Ok(())
    }

    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        self.link.read(move |db| slice::delayed(db, before, rows(limit))).await
    }

    async fn detached(&self, before: i64) -> Result<Vec<Ino>> {
        self.link.read(move |db| garbage::detached(db, before)).await
    }

    async fn insert_acl(&self, rule: &AclRule) -> Result<u32> {
        let rule = rule.clone();
        self.link.change(move |db| acl::insert(db, &rule)).await
    }

    async fn acls(&self) -> Result<Vec<(u32, AclRule)>> {
        self.link.read(acl::all).await
    }

    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        let mut left = Vec::new();
        for some in deltas.chunks(STATS_AT_ONCE) {
            let some = some.to_vec();
            let missed = self.link.change(move |db| {
                let mut missed = Vec::new();
                for (ino, by) in &some {
                    if !usage::add_dir_stat(db, *ino, by)? {
                        missed.push(*ino);
                    }
                }
                Ok(missed)
            });
            left.extend(missed.await?);
        }
        Ok(left)
    }

    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        let stat = *stat;
        self.link.change(move |db| usage::recount_dir_stat(db, ino, &stat)).await
    }

    async fn clear_dir_stats(&self) -> Result<()> {
        self.link.change(usage::clear_dir_stats).await
    }

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        self.link.read(|db| db.snapshot(|| usage::quotas(db))).await
    }

    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        self.link.read(move |db| usage::quota(db, key)).await
    }

    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool> {
        let quota = *quota;
        self.link.change(move |db| usage::put_quota(db, key, &quota, usage)).await
    }

    async fn remove_quota(&self, key: QuotaKey) -> Result<()> {
        self.link.change(move |db| usage::remove_quota(db, key)).await
    }

    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        let deltas = deltas.to_vec();
        self.link
            .change(move |db| {
                deltas.iter().try_for_each(|(key, space, inodes)| {
                    usage::add_quota_usage(db, *key, *space, *inodes)
                })
            })
            .await
    }

    async fn clear_owner_quotas(&self) -> Result<()> {
        self.link.change(usage::clear_owner_quotas).await
    }

    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        self.link.read(move |db| log::lines(db, after, rows(limit))).await
    }

    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        let cutoff = self.link.read(move |db| log::cutoff(db, before, keep)).await?;
        if cutoff > 0 {
            while !self.link.change(move |db| log::drop_some(db, cutoff)).await? {}
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.link.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let place = self.place().to_owned();
        blocking(move || {
            for thread in threads {
                thread.join().map_err(|_| Error::Engine {
                    place: place.clone(),
                    cause: "a thread of the engine failed".to_owned(),
                })?;
            }
            Ok(())
        })
        .await?
    }
}
