//! A bucket in memory that fails, delays and stops on demand.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jfs::Result;
use jfs::object::fault_injection::{FaultRates, FaultyStore};
use jfs::object::mem::MemStore;
use jfs::object::{GetRequest, Object, ObjectStore};
use tokio::sync::watch;

pub struct FaultyBucket {
    objects: Arc<MemStore>,
    /// Where bodies are put and read. Deleting always works, so that a test can detect a leak.
    puts: FaultyStore,
    gets: FaultyStore,
    /// Delays every request, each by another time.
    pub slow: AtomicBool,
    /// Every put and get panics.
    pub panics: AtomicBool,
    requests: AtomicU64,
    gets_seen: Mutex<Vec<String>>,
    /// Puts and gets of keys with this suffix wait.
    held: watch::Sender<Option<String>>,
}

impl Default for FaultyBucket {
    fn default() -> Self {
        let objects = Arc::new(MemStore::default());
        Self {
            puts: FaultyStore::new(objects.clone()),
            gets: FaultyStore::new(objects.clone()),
            objects,
            slow: AtomicBool::default(),
            panics: AtomicBool::default(),
            requests: AtomicU64::default(),
            gets_seen: Mutex::default(),
            held: watch::Sender::default(),
        }
    }
}

impl FaultyBucket {
    /// Blocks all requests for keys with this suffix.
    pub fn hold(&self, end: &str) {
        self.held.send_replace(Some(end.to_owned()));
    }

    pub fn release(&self) {
        self.held.send_replace(None);
    }

    /// From now on every put fails, perhaps after it took effect; or none does.
    pub fn fail(&self, broken: bool) {
        let half = if broken { 0.5 } else { 0.0 };
        self.puts.set_rates(FaultRates {
            error: half,
            lost_response: half,
            ..FaultRates::default()
        });
    }

    /// From now on some puts and gets fail, with and without effect, and some are delayed; or none
    /// are.
    pub fn disturb(&self, disturbed: bool) {
        let rates = if disturbed {
            let max_delay = Duration::from_millis(2);
            FaultRates {
                error: 0.2,
                lost_response: 0.2,
                delay: 0.3,
                max_delay,
                ..FaultRates::default()
            }
        } else {
            FaultRates::default()
        };
        self.puts.set_rates(rates);
        self.gets.set_rates(rates);
    }

    pub async fn keys(&self) -> Vec<String> {
        let objects = self.objects.list("", "", usize::MAX).await.unwrap();
        objects.into_iter().map(|object| object.key).collect()
    }

    /// The keys that were read, in order.
    pub fn gets(&self) -> Vec<String> {
        self.gets_seen.lock().unwrap().clone()
    }

    async fn pass(&self, key: &str) {
        assert!(!self.panics.load(Ordering::Relaxed), "a defect of the store");
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
impl ObjectStore for FaultyBucket {
    fn place(&self) -> &'static str {
        "test://"
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.gets_seen.lock().unwrap().push(key.to_owned());
        self.pass(key).await;
        self.gets.get(key, request).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.pass(key).await;
        self.puts.put(key, body, tier).await
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
