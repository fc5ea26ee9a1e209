//! Memory: many files at once within one budget, without deadlocks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use jfs::chunk::Budget;
use jfs::object::{GetRequest, Object, ObjectStore};
use jfs::{Error, Result};
use tokio::sync::watch;

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{BLOCK, Client, noise, read, within};
use crate::support::volume::Volume;

const MIB: usize = 1 << 20;
const FILES: usize = 64;
const BIG_BLOCK: u32 = 4 << 20;

/// A bucket that has every block: each is filled with one byte, derived from its key.
#[derive(Default)]
struct ConstantBucket {
    hangs: watch::Sender<bool>,
}

fn filling(key: &str) -> u8 {
    key.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte))
}

#[async_trait]
impl ObjectStore for ConstantBucket {
    fn place(&self) -> &'static str {
        "endless://"
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
        tokio::task::yield_now().await;
        let size: u64 = key.rsplit('_').next().unwrap().parse().unwrap();
        let range = request.range.unwrap_or(0..size);
        Ok(vec![filling(key); usize::try_from(range.end - range.start).unwrap()].into())
    }

    async fn put(&self, _key: &str, _body: Bytes, _tier: u8) -> Result<()> {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn delete(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    async fn head(&self, key: &str) -> Result<Object> {
        Ok(Object::new(key, 0, SystemTime::UNIX_EPOCH))
    }

    async fn list(&self, _prefix: &str, _after: &str, _limit: usize) -> Result<Vec<Object>> {
        Err(Error::NotSupported)
    }

    async fn create(&self) -> Result<()> {
        Ok(())
    }
}

async fn client(budget: &Arc<Budget>) -> (Volume, Client, Arc<ConstantBucket>) {
    let vol = Volume::memory().await;
    let bucket = Arc::new(ConstantBucket::default());
    let here = Client::sized(vol.client().await, bucket.clone(), BIG_BLOCK, budget.clone());
    (vol, here, bucket)
}

/// Writes a file from its start, as the kernel would.
async fn write_all(here: &Client, at: usize, size: usize) {
    let file = here.create(&format!("f{at}")).await;
    let bytes = vec![1; 256 << 10];
    for off in (0..size).step_by(bytes.len()) {
        here.content.write(file.ino(), off as u64, &bytes).await.unwrap();
    }
    here.content.flush(file.ino()).await.unwrap();
    assert_eq!(here.stored_length(file.ino()).await, size as u64);
}

/// Reads a file from start to end, two requests at a time.
async fn read_all(here: &Client, ino: jfs::meta::Ino, size: usize) {
    let reader = here.open(ino).await;
    let len = 1 << 20;
    // Buffers are dropped at once: a reader must not hold some while it waits for more.
    let count =
        async |off| -> usize { reader.read(off, len).await.unwrap().iter().map(Bytes::len).sum() };
    for off in (0..size as u64).step_by(2 << 20) {
        let (one, two) = tokio::join!(count(off), count(off + u64::from(len)));
        assert_eq!(one + two, 2 << 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_stay_within_the_budget() {
    let budget = Budget::new(64 * MIB);
    let (_vol, here, _) = client(&budget).await;
    within("writing", join_all((0..FILES).map(|at| write_all(&here, at, 16 * MIB)))).await;
    assert!(budget.peak() <= 64 * MIB * 8 / 10, "{} MiB", budget.peak() / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_stay_within_the_budget() {
    let budget = Budget::new(64 * MIB);
    let (_vol, here, _) = client(&budget).await;
    for at in 0..FILES {
        within("writing", write_all(&here, at, 16 * MIB)).await;
    }
    let mut inodes = Vec::new();
    for at in 0..FILES {
        let name = crate::support::data::name(&format!("f{at}"));
        let root = jfs::meta::Caller::root();
        inodes.push(here.meta.lookup(&root, jfs::meta::Ino::ROOT, &name).await.unwrap().0);
    }
    within("reading", join_all(inodes.iter().map(|ino| read_all(&here, *ino, 16 * MIB)))).await;
    assert!(budget.peak() <= 64 * MIB, "{} MiB", budget.peak() / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_survive_a_store_that_hangs_for_a_while() {
    let budget = Budget::new(64 * MIB);
    let (_vol, here, bucket) = client(&budget).await;
    let file = here.create("read").await;
    here.content.write(file.ino(), 0, &vec![1; 16 * MIB]).await.unwrap();
    here.flush(file.ino()).await;
    bucket.hangs.send_replace(true);
    let work = async {
        let writes = join_all((0..FILES).map(|at| write_all(&here, at, 4 * MIB)));
        let reads = join_all((0..8).map(|_| read_all(&here, file.ino(), 16 * MIB)));
        tokio::join!(writes, reads);
    };
    let end_of_hanging = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        bucket.hangs.send_replace(false);
    };
    within("all of it", async { tokio::join!(work, end_of_hanging) }).await;
    assert!(budget.peak() <= 64 * MIB, "{} MiB", budget.peak() / MIB);
}

#[tokio::test]
async fn a_write_larger_than_the_whole_budget_succeeds() {
    let vol = Volume::memory().await;
    let bucket = Arc::new(FaultyBucket::default());
    let here = Client::sized(vol.client().await, bucket, BLOCK, Budget::new(4 << 10));
    let file = here.create("f").await;
    let bytes = noise(50_000, 1);
    here.write(file.ino(), 0, &bytes).await;
    here.flush(file.ino()).await;
    for (index, expected) in (0..).zip(bytes.chunks(5000)) {
        assert!(read(&file, index * 5000, 5000).await == expected);
    }
}

#[tokio::test]
async fn small_dirty_files_make_room_for_each_other() {
    let vol = Volume::memory().await;
    let bucket = Arc::new(FaultyBucket::default());
    let here = Client::sized(vol.client().await, bucket, BLOCK, Budget::new(64 << 10));
    // Each holds a little and is not flushed: together more than there is memory for.
    for at in 0..500 {
        let file = here.create(&format!("f{at}")).await;
        here.write(file.ino(), 0, b"a little").await;
    }
    within("close", here.content.close()).await.unwrap();
}
