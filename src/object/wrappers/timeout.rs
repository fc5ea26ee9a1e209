//! A timeout for each request, from its first byte to its last.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::object::{GetRequest, Object, ObjectStore};

pub struct TimeoutStore {
    inner: Arc<dyn ObjectStore>,
    get: Duration,
    put: Duration,
}

impl TimeoutStore {
    /// `get` applies to get, list and head, `put` to put, delete and create.
    pub fn new(inner: Arc<dyn ObjectStore>, get: Duration, put: Duration) -> Self {
        Self { inner, get, put }
    }

    async fn within<T>(
        &self,
        limit: Duration,
        action: &'static str,
        key: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| {
            Err(Error::Storage {
                place: self.inner.place().to_owned(),
                action,
                key: key.to_owned(),
                cause: format!("no response within {limit:?}"),
            })
        })
    }
}

#[async_trait]
impl ObjectStore for TimeoutStore {
    fn place(&self) -> &str {
        self.inner.place()
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.within(self.get, "get", key, self.inner.get(key, request)).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.within(self.put, "put", key, self.inner.put(key, body, tier)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.within(self.put, "delete", key, self.inner.delete(key)).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.within(self.get, "head", key, self.inner.head(key)).await
    }

    /// A listing may take several requests, each with the timeout of one.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        let pages = u32::try_from(limit.div_ceil(1000).max(1)).unwrap_or(u32::MAX);
        let time = self.get.saturating_mul(pages);
        self.within(time, "list", prefix, self.inner.list(prefix, after, limit)).await
    }

    async fn create(&self) -> Result<()> {
        self.within(self.put, "create", "", self.inner.create()).await
    }

    fn has_cheap_ranges(&self) -> bool {
        self.inner.has_cheap_ranges()
    }

    fn verifies_whole(&self) -> bool {
        self.inner.verifies_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::fault_injection::{Fault, FaultyStore};
    use crate::object::mem::MemStore;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_fails_with_a_timeout() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemStore::default())));
        let limits = (Duration::from_mins(1), Duration::from_secs(30));
        let store = TimeoutStore::new(faulty.clone(), limits.0, limits.1);
        faulty.script([Fault::Hang]);
        let error = store.put("a", Bytes::new(), 0).await.unwrap_err();
        assert_eq!(error.to_string(), "mem://: cannot put a: no response within 30s");
        store.put("a", Bytes::new(), 0).await.unwrap();
    }
}
