//! The cache through its interface, on real directories.

mod damage;
mod dirs;
mod failing;
mod keeping;
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

use super::space::{Room, Space};
use super::{Cache, CacheOptions, Checksum, Eviction, VolumeCache};
use crate::chunk::{BlockKey, Layout};
use crate::slice::SliceId;

pub const LAYOUT: Layout = Layout { block_size: 1 << 20, hash_prefix: false };
pub const UUID: &str = "0c4f3a4e-9d3e-4f0c-8d51-d5c0de8f7a11";
/// For what must happen; far longer than it takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cache in a folder of its own.
pub struct Scene {
    pub folder: TempDir,
    pub cache: Arc<Cache>,
    pub volume: Arc<VolumeCache>,
    pub room: Arc<FakeRoom>,
}

/// A disk that is as large and as full as a test wants.
pub struct FakeRoom(pub Mutex<Room>);

impl Space for FakeRoom {
    fn room(&self, _: &Path) -> std::io::Result<Room> {
        Ok(*self.0.lock().unwrap())
    }
}

pub const VAST: Room =
    Room { bytes: 1 << 50, free_bytes: 1 << 49, inodes: 1 << 40, free_inodes: 1 << 39 };

impl Scene {
    pub async fn new(change: impl FnOnce(&mut CacheOptions)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), change).await
    }

    pub async fn within(folder: TempDir, change: impl FnOnce(&mut CacheOptions)) -> Self {
        let mut options = options(folder.path());
        change(&mut options);
        let room = Arc::new(FakeRoom(Mutex::new(VAST)));
        let cache = Cache::open_with(options, room.clone()).await.unwrap();
        let volume = cache.volume(UUID, LAYOUT, None).unwrap();
        Self { folder, cache, volume, room }
    }

    /// Everything is written; a new process comes.
    pub async fn reopen(self, change: impl FnOnce(&mut CacheOptions)) -> Self {
        let Self { folder, cache, volume, .. } = self;
        cache.close().await;
        drop((volume, cache));
        Self::within(folder, change).await
    }

    /// Where a block lies, with one directory.
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
        until(|| self.cache.disks.iter().flatten().all(|disk| disk.books().pending.is_idle()))
            .await;
    }

    /// Waits until the first scan is over.
    pub async fn scanned(&self) {
        until(|| {
            let disks = self.cache.disks.iter().flatten();
            let mut areas =
                disks.flat_map(|disk| disk.areas().into_iter().map(move |area| (disk, area)));
            areas.all(|(disk, area)| disk.books().ledger.is_complete(area.id))
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

/// Bytes that differ from place to place and from block to block.
pub fn body(block: BlockKey) -> Bytes {
    let seed = block.slice.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |i: u32| (seed.wrapping_add(u64::from(i) * u64::from(i)) >> 7).to_le_bytes()[0];
    (0..block.size).map(byte).collect()
}

/// Waits for something that must come.
pub async fn until(mut ready: impl FnMut() -> bool) {
    let waiting = async {
        while !ready() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it did not come");
}
