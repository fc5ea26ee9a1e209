//! Tests of the block cache with the real Go client, on a full disk, and after a crash.
#![cfg(test)]

mod crash;
mod full;
mod go_client;

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jfs::chunk::{BlockKey, Cache, CacheOptions, Layout, VolumeCache};
use jfs::slice::SliceId;
use tokio::time::{sleep, timeout};

/// Timeout for things that must happen; far longer than they take.
const PATIENCE: Duration = Duration::from_mins(1);

const LAYOUT: Layout = Layout { block_size: 4 << 20, hash_prefix: false };

async fn open(dirs: &str, uuid: &str) -> (Arc<Cache>, Arc<VolumeCache>) {
    let mut options = CacheOptions::parse(dirs).unwrap();
    // The machine's disk may be fuller than the default allows.
    options.free_ratio = 0.001;
    let cache = Cache::open(options).await.unwrap();
    let volume = cache.volume(uuid, LAYOUT, None).unwrap();
    (cache, volume)
}

/// Returns a body that depends on the block and the offset.
fn body(block: BlockKey) -> Bytes {
    let seed = block.slice.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |i: u32| (seed.wrapping_add(u64::from(i) * u64::from(i)) >> 7).to_le_bytes()[0];
    (0..block.size).map(byte).collect()
}

fn block(slice: u64, size: u32) -> BlockKey {
    BlockKey { slice: SliceId(slice), index: 0, size }
}

/// Returns every file below a directory, by its relative path.
fn files(root: &Path) -> Vec<PathBuf> {
    fn walk(root: &Path, dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found
}

/// Returns the blocks whose files are below a directory.
fn blocks(root: &Path) -> Vec<BlockKey> {
    files(root).iter().filter_map(|path| LAYOUT.parse(path.to_str()?)).collect()
}

/// Waits until `ready` returns true.
async fn until(mut ready: impl FnMut() -> bool) {
    let waiting = async {
        while !ready() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it did not happen in time");
}
