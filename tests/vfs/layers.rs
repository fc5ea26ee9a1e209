//! The layers between content and its bucket: memory only, or little memory and a cache on disk.

use std::sync::Arc;

use jfs::chunk::{Budget, Cache, CacheOptions, Layout, Options, VolumeCache, Writeback};
use tempfile::TempDir;
use uuid::Uuid;

/// Enough for every block of a test.
pub const PLENTY: usize = 1 << 20;
/// A few blocks: most reads come from the layers below.
const SCARCE: usize = 4 << 10;
/// Bytes of the cache on disk; small enough that a test evicts blocks.
const CACHED: u64 = 2 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layers {
    Memory,
    /// Blocks that are written and read are also cached on disk.
    Cache,
    /// Blocks count as stored once they are staged on disk.
    Writeback,
}

/// The cache of one client, in its own folder.
pub struct Disk {
    pub volume: Arc<VolumeCache>,
    _cache: Arc<Cache>,
    _folder: TempDir,
}

impl Layers {
    pub fn budget(self) -> Arc<Budget> {
        Budget::new(if self == Self::Memory { PLENTY } else { SCARCE })
    }

    pub fn options(self) -> Options {
        Options {
            cache_large_write: self == Self::Cache,
            writeback: (self == Self::Writeback).then(Writeback::default),
            ..Options::default()
        }
    }

    pub async fn disk(self, layout: Layout) -> Option<Disk> {
        if self == Self::Memory {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let options = CacheOptions::parse(folder.path().to_str().unwrap()).unwrap();
        let cache = Cache::open(CacheOptions { size: CACHED, free_ratio: 0.01, ..options });
        let cache = cache.await.unwrap();
        let volume = cache.volume(&Uuid::new_v4().to_string(), layout, None).unwrap();
        Some(Disk { volume, _cache: cache, _folder: folder })
    }
}
