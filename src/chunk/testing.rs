//! A bucket for tests that counts requests and can block them or make them fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::{
    BlockKey, Budget, Cache, CacheOptions, Compression, Layout, Options, Store, StoreConfig,
    Upload, VolumeCache,
};
use crate::error::{Error, Result};
use crate::object::mem::MemStore;
use crate::object::{GetRequest, Object, ObjectStore};
use crate::slice::{SliceId, SliceSize};
use crate::sync::Mutex;

pub const BLOCK: u32 = 16 << 10;
pub const LAYOUT: Layout = Layout { block_size: BLOCK, hash_prefix: false };

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct TestBucket {
    pub mem: MemStore,
    pub gets: AtomicUsize,
    pub part_gets: AtomicUsize,
    pub puts: AtomicUsize,
    pub most_gets_at_once: AtomicUsize,
    /// The keys of all gets, in order.
    pub keys_read: Mutex<Vec<String>>,
    pub most_puts_at_once: AtomicUsize,
    /// How many of the next requests fail.
    failures: AtomicUsize,
    gets_now: AtomicUsize,
    puts_now: AtomicUsize,
    open: watch::Sender<bool>,
}

impl TestBucket {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            mem: MemStore::default(),
            gets: AtomicUsize::new(0),
            part_gets: AtomicUsize::new(0),
            puts: AtomicUsize::new(0),
            most_gets_at_once: AtomicUsize::new(0),
            keys_read: Mutex::default(),
            most_puts_at_once: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            gets_now: AtomicUsize::new(0),
            puts_now: AtomicUsize::new(0),
            open: watch::Sender::new(true),
        })
    }

    /// Creates a bucket that holds a slice.
    pub async fn with(slice: SliceSize) -> Arc<Self> {
        let bucket = Self::new();
        bucket.fill(slice).await;
        bucket
    }

    pub async fn fill(&self, slice: SliceSize) {
        for block in LAYOUT.blocks(slice) {
            self.mem.put(&LAYOUT.key(block), body(block), 0).await.unwrap();
        }
    }

    /// Makes requests wait until `release`.
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn release(&self) {
        self.open.send_replace(true);
    }

    pub fn fail(&self, fails: bool) {
        let left = if fails { usize::MAX } else { 0 };
        self.failures.store(left, Ordering::SeqCst);
    }

    /// Makes the next request fail.
    pub fn fail_once(&self) {
        self.failures.store(1, Ordering::SeqCst);
    }

    /// Whether every block of the slice is in the bucket with the right content.
    pub async fn has(&self, slice: SliceSize) -> bool {
        for block in LAYOUT.blocks(slice) {
            match self.mem.get(&LAYOUT.key(block), GetRequest::whole()).await {
                Ok(found) if found == body(block) => {}
                _ => return false,
            }
        }
        true
    }

    pub async fn is_empty(&self) -> bool {
        self.mem.list("", "", 1).await.unwrap().is_empty()
    }

    pub fn puts(&self) -> usize {
        self.puts.load(Ordering::SeqCst)
    }

    pub fn count(&self) -> (usize, usize) {
        (self.gets.load(Ordering::SeqCst), self.part_gets.load(Ordering::SeqCst))
    }

    async fn pass(&self, key: &str, action: &'static str) -> Result<()> {
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.unwrap();
        // Lets requests overlap if they can.
        tokio::task::yield_now().await;
        let take = |left: usize| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            let (place, key) = (self.place().to_owned(), key.to_owned());
            return Err(Error::Storage { place, action, key, cause: "made to fail".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl ObjectStore for TestBucket {
    fn place(&self) -> &'static str {
        "bucket://"
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        let count = if request.range.is_some() { &self.part_gets } else { &self.gets };
        count.fetch_add(1, Ordering::SeqCst);
        self.keys_read.lock().push(key.to_owned());
        let now = self.gets_now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_gets_at_once.fetch_max(now, Ordering::SeqCst);
        let passed = self.pass(key, "read").await;
        self.gets_now.fetch_sub(1, Ordering::SeqCst);
        passed?;
        self.mem.get(key, request).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        let now = self.puts_now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_puts_at_once.fetch_max(now, Ordering::SeqCst);
        let passed = self.pass(key, "write").await;
        self.puts_now.fetch_sub(1, Ordering::SeqCst);
        passed?;
        self.mem.put(key, body, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.pass(key, "delete").await?;
        self.mem.delete(key).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.mem.head(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.mem.list(prefix, after, limit).await
    }

    async fn create(&self) -> Result<()> {
        Ok(())
    }
}

pub fn slice(id: u64, size: u32) -> SliceSize {
    SliceSize { id: SliceId(id), size }
}

/// Returns the content of a block in these tests: every byte depends on the block and its offset.
pub fn body(block: BlockKey) -> Bytes {
    let seed = block.slice.0.wrapping_mul(31) + u64::from(block.index) * 7;
    (0..u64::from(block.size)).map(|at| (seed + at * 11 + (at >> 8)).to_le_bytes()[0]).collect()
}

/// Returns the content of a slice in these tests.
pub fn content(slice: SliceSize) -> Vec<u8> {
    LAYOUT.blocks(slice).flat_map(body).collect()
}

/// Waits until `so` holds; fails the test if that takes too long.
pub async fn until(what: &str, so: impl Fn() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(what, wait).await;
}

/// Waits for `work`; fails the test if that takes too long.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|late| panic!("{what}: {late}"))
}

/// Opens a cache in `folder`, as a new process would.
pub async fn cache_in(folder: &Path) -> (Arc<Cache>, Arc<VolumeCache>) {
    let dirs = vec![folder.to_owned()];
    // Works however full the machine's disk is.
    let options = CacheOptions { dirs, free_ratio: 0.0, ..CacheOptions::default() };
    let cache = Cache::open(options).await.unwrap();
    let volume = cache.volume("a-volume", LAYOUT, None).unwrap();
    (cache, volume)
}

/// Returns what most tests build a store from: room for a hundred blocks, no cache.
pub fn config(bucket: &Arc<TestBucket>) -> StoreConfig {
    StoreConfig {
        objects: bucket.clone(),
        layout: LAYOUT,
        compression: Compression::None,
        cache: None,
        budget: Budget::new(100 * BLOCK as usize),
        options: Options::default(),
    }
}

/// Starts to upload all blocks of a slice.
pub fn write(store: &Arc<Store>, slice: SliceSize) -> Upload {
    let mut upload = store.upload(slice.id, 0);
    for block in LAYOUT.blocks(slice) {
        upload.put(block.index, body(block), None);
    }
    upload
}
