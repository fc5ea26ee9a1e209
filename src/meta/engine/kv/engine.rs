//! The engine over a key-value store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::keys::StoreKey;
use super::read::{Unguarded, records};
use super::store::KvStore;
use super::transaction::{DirLocks, KvTxn};
use crate::error::Result;
use crate::meta::engine::{Engine, EngineProperties, Key, Record, Txn};

/// One volume in an ordered key-value store.
pub struct KvEngine {
    pub(super) store: Arc<dyn KvStore>,
    dir_locks: Option<Arc<DirLocks>>,
}

impl KvEngine {
    pub fn new(store: Arc<dyn KvStore>) -> Self {
        let dir_locks = DirLocks::new(store.properties().shared_lock_slots).map(Arc::new);
        Self { store, dir_locks }
    }

    /// Returns the newest committed value of one key.
    pub(super) async fn one(&self, key: &StoreKey) -> Result<Option<Bytes>> {
        Ok(self.store.get(&[key.encode()]).await?.pop().flatten())
    }
}

#[async_trait]
impl Engine for KvEngine {
    fn name(&self) -> &'static str {
        self.store.properties().name
    }

    fn address(&self) -> &str {
        self.store.address()
    }

    fn properties(&self) -> EngineProperties {
        let store = self.store.properties();
        EngineProperties {
            usage_in_commit: false,
            entry_needs_node: false,
            batch: store.batch,
            sorted: true,
            refuses_empty_xattr: store.refuses_empty_values,
        }
    }

    fn begin(&self) -> Box<dyn Txn> {
        Box::new(KvTxn::new(self.store.clone(), self.dir_locks.clone()))
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Record>> {
        records(&mut Unguarded(self.store.as_ref()), keys).await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
