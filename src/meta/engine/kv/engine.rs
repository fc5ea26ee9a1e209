//! The engine over a key-value store, and its listings.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::keys::{StoreKey, prefix};
use super::read::{Unguarded, records};
use super::store::{KvStore, Scan};
use super::txn::{KvTransaction, Order};
use crate::error::{Error, Result};
use crate::meta::engine::{
    Cursor, Engine, EngineProperties, EntryPage, Key, Listings, Record, Txn,
};
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

/// One volume in an ordered key-value store.
pub struct KvEngine {
    pub(super) store: Arc<dyn KvStore>,
    order: Arc<Order>,
}

impl KvEngine {
    pub fn new(store: Arc<dyn KvStore>) -> Self {
        let order = Arc::new(Order::new(store.properties().seats));
        Self { store, order }
    }

    /// The newest value of one key.
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
        Box::new(KvTransaction::new(self.store.clone(), self.order.clone()))
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Record>> {
        records(&mut Unguarded(self.store.as_ref()), keys).await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}

#[async_trait]
impl Listings for KvEngine {
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
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

    async fn chunk_indexes(&self, ino: Ino, _length: u64) -> Result<Vec<u32>> {
        let keys = self.keys_under(&prefix::chunks(ino), |_| true).await?;
        let indexes = keys.iter().filter_map(|key| match StoreKey::decode(key) {
            Some(StoreKey::Chunk(_, index)) => Some(index),
            _ => None,
        });
        Ok(indexes.collect())
    }
}
