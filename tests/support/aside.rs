//! A store in which nobody takes a seat: whoever relies on a place locks a key beside its seats, so
//! that who ends the place does not notice. For showing what the seats are there for.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jfs::error::Result;
use jfs::meta::engine::CommitError;
use jfs::meta::engine::kv::{KvStore, Pair, Scan, StoreProperties, StoreTxn};

/// Behind the last seat that a place can have.
const NO_SLOT: u8 = 200;

pub struct Aside(pub Arc<dyn KvStore>);

struct AsideTxn(Box<dyn StoreTxn>);

#[async_trait]
impl KvStore for Aside {
    fn properties(&self) -> StoreProperties {
        self.0.properties()
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        Ok(Box::new(AsideTxn(self.0.begin().await?)))
    }

    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.0.get(keys).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>> {
        self.0.scan(scan).await
    }

    async fn wipe(&self) -> Result<()> {
        self.0.wipe().await
    }
}

#[async_trait]
impl StoreTxn for AsideTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.0.get(keys).await
    }

    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        self.0.scan(scan).await
    }

    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.0.put(key, value);
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.0.delete(key);
    }

    fn guard(&mut self, key: &[u8]) {
        self.0.guard(key);
    }

    fn lock_shared(&mut self, key: &[u8], _slot: u8) {
        self.0.lock_shared(key, NO_SLOT);
    }

    fn lock_exclusive(&mut self, key: &[u8]) {
        self.0.lock_exclusive(key);
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        self.0.commit().await
    }
}
