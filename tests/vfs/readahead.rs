//! Readahead over a store that is far away, in simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jfs::Result;
use jfs::chunk::Budget;
use jfs::meta::Ino;
use jfs::object::mem::MemStore;
use jfs::object::{GetRequest, Object, ObjectStore};
use jfs::vfs::Reader;
use tokio::time::{Instant, sleep};

use crate::fixture::{Client, noise, read};
use crate::support::volume::Volume;

const BLOCK: u32 = 16 << 10;
/// From a request to its first byte.
const FIRST_BYTE: Duration = Duration::from_millis(20);
/// The time that the bytes of a block take.
const TRANSFER: Duration = Duration::from_millis(52);

/// A store in memory that answers after a while, and counts what it sends.
#[derive(Default)]
struct DistantBucket {
    objects: MemStore,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    bytes_sent: AtomicUsize,
}

impl DistantBucket {
    /// Returns the most requests in flight since the last call.
    fn take_most_in_flight(&self) -> usize {
        self.most_in_flight.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl ObjectStore for DistantBucket {
    fn place(&self) -> &'static str {
        "distant://"
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        let body = self.objects.get(key, request).await?;
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let size = u32::try_from(body.len()).unwrap();
        sleep(FIRST_BYTE + TRANSFER * size / BLOCK).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.bytes_sent.fetch_add(body.len(), Ordering::SeqCst);
        Ok(body)
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
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

/// A file of that many blocks in a distant store, and a client with memory for `budget` blocks that
/// has read nothing of it.
struct Distant {
    bucket: Arc<DistantBucket>,
    budget: Arc<Budget>,
    here: Client,
    ino: Ino,
    bytes: Vec<u8>,
    _writer: Client,
}

impl Distant {
    async fn new(blocks: usize, budget: usize) -> Self {
        let vol = Volume::memory().await;
        let bucket = Arc::new(DistantBucket::default());
        let plenty = Budget::new(256 << 20);
        let writer = Client::sized(vol.client().await, bucket.clone(), BLOCK, plenty);
        let file = writer.create("f").await;
        let bytes = noise(blocks * BLOCK as usize, 1);
        writer.write(file.ino(), 0, &bytes).await;
        writer.flush(file.ino()).await;
        let budget = Budget::new(budget * BLOCK as usize);
        let here = Client::sized(vol.client().await, bucket.clone(), BLOCK, budget.clone());
        Self { bucket, budget, here, ino: file.ino(), bytes, _writer: writer }
    }

    async fn open(&self) -> Reader {
        self.here.open(self.ino).await
    }

    /// Reads and compares blocks `from..to` in quarters of a block.
    async fn walk(&self, reader: &Reader, from: usize, to: usize) {
        let part = BLOCK / 4;
        for at in (from * BLOCK as usize..to * BLOCK as usize).step_by(part as usize) {
            let found = match reader.read_now(at as u64, part) {
                Some(found) => found.concat(),
                None => read(reader, at as u64, part).await,
            };
            assert!(found == self.bytes[at..at + part as usize], "at {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_eight_budgets_keeps_as_many_requests_in_flight_to_its_end() {
    let distant = Distant::new(8 * 64, 64).await;
    let file = distant.open().await;
    distant.walk(&file, 0, 128).await;
    distant.bucket.take_most_in_flight();
    distant.walk(&file, 128, 192).await;
    let early = distant.bucket.take_most_in_flight();
    distant.walk(&file, 192, 400).await;
    distant.bucket.take_most_in_flight();
    distant.walk(&file, 400, 464).await;
    let late = distant.bucket.take_most_in_flight();
    assert!(early > 16, "{early} requests in flight");
    assert!(late >= early, "{late} requests in flight after {early}");
    assert!(distant.budget.peak() <= distant.budget.capacity());
}

#[tokio::test(start_paused = true)]
async fn each_block_of_a_stream_is_fetched_once() {
    let distant = Distant::new(300, 64).await;
    let file = distant.open().await;
    distant.walk(&file, 0, 300).await;
    assert_eq!(distant.bucket.bytes_sent.load(Ordering::SeqCst), 300 * BLOCK as usize);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_gets_more_in_flight_than_one_that_pauses() {
    let distant = Distant::new(400, 128).await;
    let file = distant.open().await;
    distant.walk(&file, 0, 200).await;
    let waiting = distant.bucket.take_most_in_flight();
    let slow = distant.open().await;
    for block in 200..400 {
        distant.walk(&slow, block, block + 1).await;
        sleep(4 * (FIRST_BYTE + TRANSFER)).await;
    }
    distant.bucket.take_most_in_flight();
    assert!(waiting > 32, "{waiting}");
}

#[tokio::test(start_paused = true)]
async fn eight_streams_share_the_memory_and_go_on_side_by_side() {
    let distant = Distant::new(8 * 64, 64).await;
    let file = distant.open().await;
    let start = Instant::now();
    let walks = (0..8).map(|stream| distant.walk(&file, stream * 64, stream * 64 + 64));
    futures::future::join_all(walks).await;
    let one_by_one = (FIRST_BYTE + TRANSFER) * 64;
    assert!(start.elapsed() < one_by_one / 2, "{:?} of {one_by_one:?}", start.elapsed());
    assert!(distant.budget.peak() <= distant.budget.capacity());
}

#[tokio::test(start_paused = true)]
async fn a_backward_walk_does_not_wait_for_each_block() {
    let distant = Distant::new(200, 64).await;
    let file = distant.open().await;
    let start = Instant::now();
    for block in (0..200).rev() {
        distant.walk(&file, block, block + 1).await;
    }
    let one_by_one = (FIRST_BYTE + TRANSFER) * 200;
    assert!(start.elapsed() < one_by_one / 4, "{:?} of {one_by_one:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_walk_in_equal_steps_fetches_ahead_and_little_else() {
    let distant = Distant::new(400, 64).await;
    let file = distant.open().await;
    let start = Instant::now();
    for block in (1..400).step_by(8) {
        distant.walk(&file, block, block + 1).await;
    }
    let one_by_one = (FIRST_BYTE + TRANSFER) * 50;
    assert!(start.elapsed() < one_by_one / 2, "{:?} of {one_by_one:?}", start.elapsed());
    let sent = distant.bucket.bytes_sent.load(Ordering::SeqCst);
    assert!(sent <= 2 * 50 * BLOCK as usize, "{sent} bytes for 50 blocks");
}
