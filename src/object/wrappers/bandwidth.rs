//! Bandwidth limits for uploads and downloads.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::object::{GetRequest, Object, ObjectStore};
use crate::rate_limit::RateLimit;

/// A store with limited bandwidth.
pub struct BandwidthLimited {
    inner: Arc<dyn ObjectStore>,
    upload: RateLimit,
    download: RateLimit,
}

impl BandwidthLimited {
    pub fn new(inner: Arc<dyn ObjectStore>, upload: RateLimit, download: RateLimit) -> Self {
        Self { inner, upload, download }
    }
}

#[async_trait]
impl ObjectStore for BandwidthLimited {
    fn place(&self) -> &str {
        self.inner.place()
    }

    /// The length of a whole object is only known once it is here, so it is accounted for
    /// afterwards, and the next request waits. The length of a range is known before.
    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        if request.range.is_some() {
            self.download.acquire(request.max_length()).await;
            return self.inner.get(key, request).await;
        }
        let body = self.inner.get(key, request).await?;
        self.download.acquire(body.len() as u64).await;
        Ok(body)
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.upload.acquire(body.len() as u64).await;
        self.inner.put(key, body, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.inner.list(prefix, after, limit).await
    }

    async fn create(&self) -> Result<()> {
        self.inner.create().await
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
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::Instant;

    use super::*;
    use crate::object::mem::MemStore;

    fn limited(upload: u64, download: u64) -> BandwidthLimited {
        BandwidthLimited::new(
            Arc::new(MemStore::default()),
            RateLimit::new(upload),
            RateLimit::new(download),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_uploads_take_as_long_as_the_rate_requires() {
        let store = limited(1000, 0);
        let begun = Instant::now();
        let puts = (0..10).map(|i| {
            let store = &store;
            async move { store.put(&i.to_string(), Bytes::from(vec![0; 1000]), 0).await }
        });
        for done in join_all(puts).await {
            done.unwrap();
        }
        // Ten seconds on a paused clock, which only sleeping advances.
        let took = begun.elapsed().as_secs_f64();
        assert!((9.8..=10.1).contains(&took), "{took}");
        assert_eq!(store.get("3", GetRequest::whole()).await.unwrap().len(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_of_objects_and_ranges_are_limited() {
        let store = limited(0, 1000);
        store.put("a", Bytes::from(vec![0; 5000]), 0).await.unwrap();
        let begun = Instant::now();
        store.get("a", GetRequest::whole()).await.unwrap();
        store.get("a", GetRequest::range(0..1000)).await.unwrap();
        let took = begun.elapsed().as_secs_f64();
        assert!((5.8..=6.1).contains(&took), "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn unused_bandwidth_is_not_saved_up() {
        let store = limited(1000, 0);
        tokio::time::sleep(Duration::from_hours(1)).await;
        let begun = Instant::now();
        store.put("a", Bytes::from(vec![0; 2000]), 0).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(1800), "{:?}", begun.elapsed());
    }
}
