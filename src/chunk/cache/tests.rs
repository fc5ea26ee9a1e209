//! Tests of the cache through its interface, on real directories.

mod blocks;
mod damage;
mod dirs;
mod failures;
mod limits;
mod owners;
mod sharing;
mod staging;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::disk::free_space::{DiskSpace, SpaceSource};
use super::{Cache, CacheOptions, Checksum, Eviction, VolumeCache};
use crate::chunk::{BlockKey, Layout};
use crate::slice::SliceId;

pub const LAYOUT: Layout = Layout { block_size: 1 << 20, hash_prefix: false };
pub const UUID: &str = "0c4f3a4e-9d3e-4f0c-8d51-d5c0de8f7a11";
/// Timeout for things that must happen; far longer than they take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cache in a temporary directory.
pub struct Scene {
    pub folder: TempDir,
    pub cache: Arc<Cache>,
    pub volume: Arc<VolumeCache>,
    pub room: Arc<FakeSpace>,
}

/// A disk of a size and usage that the test sets.
pub struct FakeSpace(pub Mutex<DiskSpace>);

impl SpaceSource for FakeSpace {
    fn disk_space(&self, _: &Path) -> std::io::Result<DiskSpace> {
        Ok(*self.0.lock().unwrap())
    }
}

pub const VAST: DiskSpace =
    DiskSpace { bytes: 1 << 50, free_bytes: 1 << 49, inodes: 1 << 40, free_inodes: 1 << 39 };

impl Scene {
    pub async fn new(change: impl FnOnce(&mut CacheOptions)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), change).await
    }

    pub async fn within(folder: TempDir, change: impl FnOnce(&mut CacheOptions)) -> Self {
        let mut options = options(folder.path());
        change(&mut options);
        let room = Arc::new(FakeSpace(Mutex::new(VAST)));
        let cache = Cache::open_with(options, room.clone()).await.unwrap();
        let volume = cache.volume(UUID, LAYOUT, None).unwrap();
        Self { folder, cache, volume, room }
    }

    /// Closes the cache, after all writes, and opens it as a new process.
    pub async fn reopen(self, change: impl FnOnce(&mut CacheOptions)) -> Self {
        let Self { folder, cache, volume, .. } = self;
        cache.close().await;
        drop((volume, cache));
        Self::within(folder, change).await
    }

    /// Returns the path of a block's file, with one directory.
    pub fn path(&self, block: BlockKey) -> PathBuf {
        cached_path(self.folder.path(), block)
    }

    pub fn staged_path(&self, block: BlockKey) -> PathBuf {
        self.folder.path().join("cache").join(UUID).join("rawstaging").join(LAYOUT.key(block))
    }

    /// Puts a block and waits until it is written.
    pub async fn keep(&self, block: BlockKey, body: &Bytes) {
        self.volume.put(block, body.clone());
        self.settle().await;
    }

    pub async fn settle(&self) {
        until(|| {
            self.cache.disks.iter().flatten().all(|disk| disk.lock_state().write_queue.is_idle())
        })
        .await;
    }

    /// Waits until the first scan is over.
    pub async fn scanned(&self) {
        until(|| {
            let disks = self.cache.disks.iter().flatten();
            let mut volume_dirs =
                disks.flat_map(|disk| disk.volume_dirs().into_iter().map(move |dir| (disk, dir)));
            volume_dirs.all(|(disk, dir)| disk.lock_state().accounting.is_complete(dir.id))
        })
        .await;
    }

    pub async fn read(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        self.volume.read(block, range).await
    }
}

pub fn options(folder: &Path) -> CacheOptions {
    CacheOptions {
        dirs: vec![folder.join("cache")],
        size: 1 << 30,
        eviction: Eviction::TwoRandom,
        checksum: Checksum::Extend,
        ..CacheOptions::default()
    }
}

pub fn cached_path(folder: &Path, block: BlockKey) -> PathBuf {
    folder.join("cache").join(UUID).join("raw").join(LAYOUT.key(block))
}

pub fn block(slice: u64, size: u32) -> BlockKey {
    BlockKey { slice: SliceId(slice), index: 0, size }
}

/// Returns a body that depends on the block and the offset.
pub fn body(block: BlockKey) -> Bytes {
    let seed = block.slice.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |i: u32| (seed.wrapping_add(u64::from(i) * u64::from(i)) >> 7).to_le_bytes()[0];
    (0..block.size).map(byte).collect()
}

/// Waits until `ready` returns true.
pub async fn until(mut ready: impl FnMut() -> bool) {
    let waiting = async {
        while !ready() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it did not happen in time");
}
