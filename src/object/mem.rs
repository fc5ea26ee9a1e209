//! A bucket in memory, for tests and benches, and for `--storage mem`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use super::{GetRequest, Object, ObjectStore};
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

/// Named buckets, which exist as long as the process.
static NAMED: LazyLock<Mutex<HashMap<String, Arc<MemStore>>>> = LazyLock::new(Mutex::default);

pub struct MemStore {
    place: String,
    objects: Mutex<BTreeMap<String, (Bytes, SystemTime)>>,
}

/// A private bucket that cannot be opened by name.
impl Default for MemStore {
    fn default() -> Self {
        Self { place: "mem://".to_owned(), objects: Mutex::default() }
    }
}

impl MemStore {
    /// Returns the bucket of that name, with or without `mem://`: the same for every caller in this
    /// process, so that a volume can be opened again.
    pub fn named(name: &str) -> Arc<Self> {
        let place = format!("mem://{}", name.strip_prefix("mem://").unwrap_or(name));
        let mut named = NAMED.lock();
        let store = named.entry(place.clone());
        Arc::clone(store.or_insert_with(|| Arc::new(Self { place, ..Self::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Bytes, SystemTime)>> {
        self.objects.lock()
    }
}

#[async_trait]
impl ObjectStore for MemStore {
    fn place(&self) -> &str {
        &self.place
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        let body = self.lock().get(key).map(|(body, _)| body.clone()).ok_or(Error::NotFound)?;
        Ok(request.range.map_or(body.clone(), |part| super::part(&body, &part)))
    }

    async fn put(&self, key: &str, body: Bytes, _tier: u8) -> Result<()> {
        self.lock().insert(key.to_owned(), (body, SystemTime::now()));
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.lock().remove(key);
        Ok(())
    }

    async fn head(&self, key: &str) -> Result<Object> {
        let objects = self.lock();
        let (body, modified) = objects.get(key).ok_or(Error::NotFound)?;
        Ok(Object::new(key, body.len() as u64, *modified))
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        let objects = self.lock();
        let start = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        Ok(objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit)
            .map(|(key, (body, modified))| Object::new(key, body.len() as u64, *modified))
            .collect())
    }

    async fn create(&self) -> Result<()> {
        Ok(())
    }
}
