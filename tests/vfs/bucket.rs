//! A bucket in memory that fails, delays and stops on demand.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jfs::object::mem::MemStore;
use jfs::object::{Object, ObjectStore};
use jfs::{Error, Result};
use tokio::sync::watch;

#[derive(Default)]
pub struct Bucket {
    objects: MemStore,
    /// Every put fails, after it has perhaps taken effect.
    pub broken: AtomicBool,
    /// Every request takes a while, each another one.
    pub slow: AtomicBool,
    requests: AtomicU64,
    gets: Mutex<Vec<String>>,
    /// Puts and gets of keys that end so wait.
    held: watch::Sender<Option<String>>,
}

impl Bucket {
    /// Stops all requests for keys that end like this.
    pub fn hold(&self, end: &str) {
        self.held.send_replace(Some(end.to_owned()));
    }

    pub fn release(&self) {
        self.held.send_replace(None);
    }

    pub fn fail(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    pub async fn keys(&self) -> Vec<String> {
        let objects = self.objects.list("", "", usize::MAX).await.unwrap();
        objects.into_iter().map(|object| object.key).collect()
    }

    /// Keys that were asked for, in this order.
    pub fn gets(&self) -> Vec<String> {
        self.gets.lock().unwrap().clone()
    }

    async fn pass(&self, key: &str) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.slow.load(Ordering::Relaxed) {
            // Uneven, so that requests overtake each other, and the same in every run.
            let micros = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
        let open = |end: &Option<String>| !end.as_ref().is_some_and(|end| key.ends_with(end));
        let _ = self.held.subscribe().wait_for(open).await;
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    fn place(&self) -> &'static str {
        "test://"
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.gets.lock().unwrap().push(key.to_owned());
        self.pass(key).await;
        self.objects.get(key, range).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.pass(key).await;
        if self.broken.load(Ordering::SeqCst) {
            if self.requests.load(Ordering::Relaxed).is_multiple_of(2) {
                self.objects.put(key, body, tier).await?;
            }
            return Err(Error::Storage {
                place: self.place().to_owned(),
                action: "put",
                key: key.to_owned(),
                cause: "broken on demand".to_owned(),
            });
        }
        self.objects.put(key, body, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.objects.delete(key).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.objects.head(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.objects.list(prefix, after, limit).await
    }

    async fn create(&self) -> Result<()> {
        Ok(())
    }
}
