//! A disk that is really full.

use std::process::Command;

use tempfile::TempDir;

use super::support::command::run;
use super::support::timeout::{MOUNTED, on_timeout, within};
use super::*;

/// A small file system in memory, unmounted when dropped.
struct Disk(TempDir);

impl Disk {
    fn mount(options: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]).arg(folder.path());
        run(command, PATIENCE).ok();
        let late = folder.path().to_owned();
        on_timeout(move || unmount(&late));
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.path());
    }
}

fn unmount(path: &Path) {
    let _ = Command::new("umount").arg("-l").arg(path).status();
}

/// Opens a cache that keeps no space free.
async fn greedy(disk: &Disk) -> (Arc<Cache>, Arc<VolumeCache>) {
    let options = CacheOptions {
        free_ratio: 0.0,
        ..CacheOptions::parse(disk.path().to_str().unwrap()).unwrap()
    };
    let cache = Cache::open(options).await.unwrap();
    let volume = cache.volume("volume", LAYOUT, None).unwrap();
    (cache, volume)
}

fn on_a_disk(options: &'static str, body: impl AsyncFnOnce(&Disk) + Send + 'static) {
    within(MOUNTED, move || {
        let disk = Disk::mount(options);
        tokio::runtime::Runtime::new().unwrap().block_on(body(&disk));
    });
}

#[test]
fn a_full_disk_drops_blocks_and_works_again_when_there_is_room() {
    on_a_disk("size=8m", async |disk| {
        let (cache, volume) = greedy(disk).await;
        let filler = disk.path().join("filler");
        let full = fs::write(&filler, vec![1; 16 << 20]);
        assert!(full.is_err(), "the disk is larger than thought");
        let size = 256 << 10;
        let staged = block(999, size);
        volume.stage(staged, &body(staged), 0).await.unwrap_err();
        assert_eq!(volume.staged().await, []);
        for slice in 0..10 {
            volume.put(block(slice, size), body(block(slice, size)));
        }
        until(|| volume.usage().drops == 10).await;
        for slice in 0..10 {
            assert_eq!(volume.read(block(slice, size), 0..size).await, None);
        }
        fs::remove_file(&filler).unwrap();
        until(|| !volume.usage().is_short).await;
        volume.put(block(1, size), body(block(1, size)));
        until(|| volume.usage().writes == 1).await;
        assert_eq!(volume.read(block(1, size), 0..size).await, Some(body(block(1, size))));
        cache.close().await;
        assert_eq!(files(&disk.path().join("volume/raw")).len(), 1, "no drafts are left");
    });
}

#[test]
fn a_cache_as_large_as_its_disk_evicts_old_blocks_for_new_ones() {
    on_a_disk("size=8m", async |disk| {
        let (cache, volume) = greedy(disk).await;
        let size = 256 << 10;
        for slice in 0..100 {
            let block = block(slice, size);
            volume.put(block, body(block));
            until(|| volume.usage().memory_bytes == 0).await;
            let read = volume.read(block, 0..size).await;
            assert!(read.is_none() || read == Some(body(block)));
        }
        let usage = volume.usage();
        assert!(usage.blocks > 20 && usage.evicts > 50, "{usage:?}");
        cache.close().await;
    });
}

#[test]
fn a_disk_without_inodes_drops_blocks() {
    on_a_disk("size=64m,nr_inodes=40", async |disk| {
        let (cache, volume) = greedy(disk).await;
        for slice in 0..200 {
            volume.put(block(slice, 1000), body(block(slice, 1000)));
            until(|| volume.usage().memory_bytes == 0).await;
        }
        let usage = volume.usage();
        assert!(usage.blocks > 5 && usage.blocks < 40, "{usage:?}");
        assert_eq!(usage.writes + usage.drops, 200);
        cache.close().await;
    });
}
