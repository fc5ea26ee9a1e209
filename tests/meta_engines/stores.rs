//! Empty stores to test on, one function for each engine.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jfs::meta::engine::kv::MemoryStore;
use jfs::meta::engine::{Engine, connect};

use crate::fixtures;
use crate::redis::RedisServer;
use crate::tikv::TikvServer;

/// A prepared store without a volume, and what keeps it alive.
pub struct TestStore {
    pub engine: Arc<dyn Engine>,
    url: String,
    _owner: Option<Box<dyn Any + Send + Sync>>,
}

impl TestStore {
    async fn open(url: String, owner: Option<Box<dyn Any + Send + Sync>>) -> Self {
        let engine = connect(&url).await.expect("the store opens");
        engine.prepare().await.expect("the store is prepared");
        Self { engine, url, _owner: owner }
    }

    /// A second client of the same store.
    pub async fn second_client(&self) -> Arc<dyn Engine> {
        connect(&self.url).await.expect("the store opens again")
    }

    /// Formats a volume, as far as engines know about it.
    pub async fn format(&self) {
        let (root, trash) = (fixtures::dir(), fixtures::dir());
        self.engine.store_setting(b"{}", &root, Some(&trash)).await.expect("the setting is stored");
    }
}

pub async fn memory() -> TestStore {
    TestStore::open(format!("memkv://{}", unique_name()), None).await
}

/// Every other commit of the store reports a false conflict, so that the mapping retries wherever
/// it can.
pub async fn memory_with_conflicts() -> TestStore {
    let name = unique_name();
    MemoryStore::named(&name).faults().conflict_every_other();
    TestStore::open(format!("memkv://{name}"), None).await
}

pub async fn sqlite() -> TestStore {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite3://{}", dir.path().join("volume.db").display());
    TestStore::open(url, Some(Box::new(dir))).await
}

pub async fn redis() -> TestStore {
    TestStore::open(RedisServer::shared().fresh_url(), None).await
}

pub async fn tikv() -> TestStore {
    TestStore::open(TikvServer::shared().fresh_url(), None).await
}

/// Splits the volume into regions, so that the records of one commit are on different servers.
pub async fn tikv_in_regions() -> TestStore {
    TestStore::open(TikvServer::shared().fresh_split_url(), None).await
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("engine-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
