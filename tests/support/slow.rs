//! A store with the latency of a network, for requests and for replies.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jfs::error::Result;
use jfs::meta::engine::CommitError;
use jfs::meta::engine::kv::{KvStore, MemoryStore, Pair, Scan, StoreProperties, StoreTxn};

/// One way.
pub const LATENCY: Duration = Duration::from_millis(1);

pub struct SlowStore(pub Arc<MemoryStore>);

struct SlowTxn(Box<dyn StoreTxn>);

async fn after<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::sleep(LATENCY).await;
    let answer = answer.await;
    tokio::time::sleep(LATENCY).await;
    answer
}

#[async_trait]
impl KvStore for SlowStore {
    fn properties(&self) -> StoreProperties {
        self.0.properties()
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        Ok(Box::new(SlowTxn(self.0.begin().await?)))
    }

    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        after(self.0.get(keys)).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>> {
        after(self.0.scan(scan)).await
    }

    async fn wipe(&self) -> Result<()> {
        self.0.wipe().await
    }
}

#[async_trait]
impl StoreTxn for SlowTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        after(self.0.get(keys)).await
    }

    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        after(self.0.scan(scan)).await
    }

    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.0.put(key, value);
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.0.delete(key);
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        after(self.0.commit()).await
    }
}
