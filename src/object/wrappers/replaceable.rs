//! A store that can be replaced while it is used: keys and buckets can change while a volume is
//! mounted.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::object::{GetRequest, Object, ObjectStore};
use crate::sync::RwLock;

/// Forwards to the store that was set last. A request ends on the store that it began on.
pub struct ReplaceableStore {
    current: RwLock<Arc<dyn ObjectStore>>,
    place: Place,
}

/// A list of all places so far: names that were returned must stay valid, and places change rarely.
struct Place {
    name: String,
    next: OnceLock<Box<Place>>,
}

impl ReplaceableStore {
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        let place = Place::new(store.place());
        Self { current: RwLock::new(store), place }
    }

    /// Replaces the store for all new requests.
    pub fn set(&self, store: Arc<dyn ObjectStore>) {
        let mut current = self.current.write();
        let last = self.place.last();
        if last.name != store.place() {
            // No other thread adds a place: the lock is held.
            last.next.get_or_init(|| Box::new(Place::new(store.place())));
        }
        *current = store;
    }

    fn current(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.current.read())
    }
}

impl Place {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), next: OnceLock::new() }
    }

    fn last(&self) -> &Self {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }
}

#[async_trait]
impl ObjectStore for ReplaceableStore {
    fn place(&self) -> &str {
        &self.place.last().name
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.current().get(key, request).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.current().put(key, body, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.current().delete(key).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.current().head(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.current().list(prefix, after, limit).await
    }

    async fn create(&self) -> Result<()> {
        self.current().create().await
    }

    fn has_cheap_ranges(&self) -> bool {
        self.current().has_cheap_ranges()
    }

    fn verifies_whole(&self) -> bool {
        self.current().verifies_whole()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::object::fault_injection::{Fault, FaultyStore};
    use crate::object::mem::MemStore;

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_on_the_store_that_it_began_on() {
        let (old, new) = (MemStore::named("live-old"), MemStore::named("live-new"));
        let slow = Arc::new(FaultyStore::new(old.clone()));
        slow.script([Fault::Delay(Duration::from_secs(1))]);
        let live = Arc::new(ReplaceableStore::new(slow.clone()));
        let name = live.place();
        let running = tokio::spawn({
            let live = Arc::clone(&live);
            async move { live.put("a", Bytes::from_static(b"old"), 0).await }
        });
        while slow.requests() == 0 {
            tokio::task::yield_now().await;
        }
        live.set(new.clone());
        live.put("b", Bytes::from_static(b"new"), 0).await.unwrap();
        running.await.unwrap().unwrap();
        assert_eq!((name, live.place()), ("mem://live-old", "mem://live-new"));
        assert_eq!(old.list("", "", 9).await.unwrap()[0].key, "a");
        assert_eq!(new.list("", "", 9).await.unwrap()[0].key, "b");
    }

    #[tokio::test]
    async fn the_place_is_that_of_the_current_store() {
        let live = ReplaceableStore::new(MemStore::named("live-1"));
        for name in ["live-2", "live-2", "live-1"] {
            live.set(MemStore::named(name));
            assert_eq!(live.place(), format!("mem://{name}"));
        }
    }
}
