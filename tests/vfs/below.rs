//! What lies between content and its bucket: memory alone, or hardly any and a cache on disk.

use std::sync::Arc;

use jfs::chunk::{Budget, Cache, CacheOptions, Layout, Options, VolumeCache, Writeback};
use tempfile::TempDir;
use uuid::Uuid;

/// Enough for every block of a test.
pub const PLENTY: usize = 1 << 20;
/// Some blocks: most of what is read comes from below.
const SCARCE: usize = 4 << 10;
/// Bytes in the cache on disk; more than once in a test a block has to go.
const CACHED: u64 = 2 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    Memory,
    /// Blocks that are written and read go to a disk, too.
    Cache,
    /// Blocks count as stored once they are on a disk.
    Writeback,
}

/// A cache of one client, in a folder of its own.
pub struct Disk {
    pub volume: Arc<VolumeCache>,
    _cache: Arc<Cache>,
    _folder: TempDir,
}

impl Below {
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
