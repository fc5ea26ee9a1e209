//! The cost of limits, in requests to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use jfs::error::Result;
use jfs::meta::engine::CommitError;
use jfs::meta::engine::kv::{
    KvEngine, KvStore, MemoryStore, Pair, Scan, StoreProperties, StoreTxn,
};
use jfs::meta::record::{FileKind, QuotaKey, Setting};
use jfs::meta::{Caller, Ino, Limits, Meta, Name, NodeKind};

use crate::support::store::{quiet, setting};

/// A store that counts requests.
struct CountedStore {
    store: Arc<MemoryStore>,
    requests: Arc<AtomicU64>,
}

struct CountedTxn {
    txn: Box<dyn StoreTxn>,
    requests: Arc<AtomicU64>,
}

#[async_trait]
impl KvStore for CountedStore {
    fn properties(&self) -> StoreProperties {
        self.store.properties()
    }

    fn address(&self) -> &str {
        self.store.address()
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        let requests = Arc::clone(&self.requests);
        Ok(Box::new(CountedTxn { txn: self.store.begin().await?, requests }))
    }

    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.store.get(keys).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.store.scan(scan).await
    }

    async fn wipe(&self) -> Result<()> {
        self.store.wipe().await
    }
}

#[async_trait]
impl StoreTxn for CountedTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.txn.get(keys).await
    }

    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.txn.scan(scan).await
    }

    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.txn.put(key, value);
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.txn.delete(key);
    }

    fn version(&self) -> u64 {
        self.txn.version()
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.txn.commit().await
    }
}

/// A client that was not started, so that no task of it sends requests, with a directory three
/// levels deep.
struct Counted {
    meta: Arc<Meta>,
    requests: Arc<AtomicU64>,
    deep: Ino,
}

impl Counted {
    async fn new(setting: Setting) -> Self {
        let requests = Arc::<AtomicU64>::default();
        let store = CountedStore { store: MemoryStore::new(), requests: Arc::clone(&requests) };
        let meta = Meta::new(Arc::new(KvEngine::new(Arc::new(store))), quiet());
        meta.init(setting, false).await.unwrap();
        let mut deep = Ino::ROOT;
        for name in ["a", "b", "c"] {
            let name = Name::new(name).unwrap();
            deep = meta.mkdir(&Caller::root(), deep, &name, 0o755, 0).await.unwrap().0;
        }
        Self { meta, requests, deep }
    }

    /// The requests that one creation takes.
    async fn create(&self, name: &str) -> u64 {
        let before = self.requests.load(Ordering::Relaxed);
        let node = NodeKind { kind: FileKind::File, rdev: 0 };
        let name = Name::new(name).unwrap();
        self.meta.mknod(&Caller::root(), self.deep, &name, node, 0o644, 0).await.unwrap();
        self.requests.load(Ordering::Relaxed) - before
    }
}

async fn plain_cost() -> u64 {
    let counted = Counted::new(setting()).await;
    counted.create("first").await;
    counted.create("second").await
}

#[tokio::test]
async fn limits_of_the_volume_cost_no_request() {
    let limited = Setting { capacity: 1 << 40, inodes: 1 << 20, ..setting() };
    let counted = Counted::new(limited).await;
    counted.create("first").await;
    assert_eq!(counted.create("second").await, plain_cost().await);
}

#[tokio::test]
async fn limits_of_owners_cost_no_request() {
    let counted = Counted::new(setting()).await;
    let limits = Limits { space: Some(1 << 40), inodes: None };
    counted.meta.quota_set(QuotaKey::User(0), limits, false).await.unwrap();
    counted.create("first").await;
    assert_eq!(counted.create("second").await, plain_cost().await);
}

#[tokio::test]
async fn limits_of_directories_cost_one_request_for_all_uncertain_ancestors() {
    let counted = Counted::new(setting()).await;
    let limits = Limits { space: Some(1 << 40), inodes: None };
    counted.meta.quota_set(QuotaKey::Dir(Ino::ROOT), limits, false).await.unwrap();
    counted.create("zeroth").await;
    // A heartbeat marks the cached ancestors as uncertain: others may have moved them.
    counted.meta.heartbeat().await.unwrap();
    let plain = plain_cost().await;
    let cold = counted.create("first").await;
    assert_eq!(cold, plain + 1);
    assert_eq!(counted.create("second").await, plain);
}

/// The layers above spawn these calls as tasks, so their futures must be `Send`.
#[tokio::test]
async fn futures_of_calls_are_send() {
    fn check<T: Send>(_: T) {}
    let counted = Counted::new(setting()).await;
    let meta = &counted.meta;
    check(meta.init(setting(), false));
    check(meta.start(jfs::meta::Registration::New));
    check(meta.close());
    check(meta.heartbeat());
    check(meta.flush());
    check(meta.lost());
    check(meta.summary(Ino::ROOT, true));
    check(meta.check_dir_stats(Ino::ROOT, true));
    check(meta.statfs(Ino::ROOT));
    check(meta.quota_set(QuotaKey::User(1), Limits::default(), true));
    check(meta.quota_check(Ino::ROOT, true, true));
    check(meta.quota_check_owners(true));
    check(meta.paths(Ino::ROOT));
    check(meta.ensure_dir("/"));
    check(meta.run_job_if_due(jfs::meta::client::Job::StaleSessions));
}
