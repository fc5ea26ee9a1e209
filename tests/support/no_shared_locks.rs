//! A key-value store whose shared locks protect nothing: `share` locks a key that `seize` does not
//! check. Tests use it to show what shared locks are needed for.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jfs::error::Result;
use jfs::meta::engine::CommitError;
use jfs::meta::engine::kv::{KvStore, Pair, Scan, StoreProperties, StoreTxn};

/// Past the last slot that `seize` checks.
const UNCHECKED_SLOT: u8 = 200;

pub struct WithoutSharedLocks(pub Arc<dyn KvStore>);

struct WithoutSharedLocksTxn(Box<dyn StoreTxn>);

#[async_trait]
impl KvStore for WithoutSharedLocks {
    fn properties(&self) -> StoreProperties {
        self.0.properties()
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        Ok(Box::new(WithoutSharedLocksTxn(self.0.begin().await?)))
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
impl StoreTxn for WithoutSharedLocksTxn {
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
        self.0.lock_shared(key, UNCHECKED_SLOT);
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
