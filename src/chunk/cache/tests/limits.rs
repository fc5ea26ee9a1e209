//! The limits of the cache, and the order of eviction.

use std::fs;

use super::*;
use crate::chunk::Budget;
use crate::chunk::cache::disk::volume_disk::write_pending;

const SIZE: u32 = 10_000;
const COST: u64 = 14_096;

impl Scene {
    async fn fill(&self, slices: Range<u64>) {
        for slice in slices {
            self.volume.put(block(slice, SIZE), body(block(slice, SIZE)));
        }
        self.settle().await;
    }

    /// Counts the block files on the disk.
    fn files(&self) -> u64 {
        fn count(dir: &Path) -> u64 {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
        }
        count(&self.folder.path().join("cache").join(UUID).join("raw"))
    }
}

#[tokio::test]
async fn bytes_are_limited_and_evicted_files_are_removed() {
    for eviction in [Eviction::TwoRandom, Eviction::Lru] {
        let scene = Scene::new(|options| {
            options.size = 50 * COST;
            options.eviction = eviction;
        })
        .await;
        scene.fill(0..200).await;
        let usage = scene.volume.usage();
        assert!(usage.bytes <= 50 * COST && usage.blocks >= 40, "{eviction:?}: {usage:?}");
        assert_eq!(scene.files(), usage.blocks);
        assert_eq!(usage.evicts + usage.blocks, 200);
        assert_eq!(usage.writes, 200);
    }
}

#[tokio::test]
async fn the_number_of_blocks_is_limited() {
    let scene = Scene::new(|options| options.items = 30).await;
    scene.fill(0..100).await;
    let blocks = scene.volume.usage().blocks;
    assert!((25..=30).contains(&blocks), "{blocks} blocks");
    assert_eq!(scene.files(), blocks);
}

#[tokio::test]
async fn recently_used_blocks_stay() {
    let scene = Scene::new(|options| {
        options.size = 20 * COST;
        options.eviction = Eviction::Lru;
    })
    .await;
    scene.scanned().await;
    // One by one: several threads write blocks, and the last to be written counts as the last used.
    for slice in 0..20 {
        scene.fill(slice..slice + 1).await;
    }
    for slice in 0..5 {
        scene.read(block(slice, SIZE), 0..1).await.unwrap();
    }
    scene.fill(20..30).await;
    assert!((0..5).all(|slice| scene.volume.contains(block(slice, SIZE))));
    assert!((5..10).all(|slice| !scene.volume.contains(block(slice, SIZE))));
}

#[tokio::test]
async fn without_eviction_new_blocks_are_dropped() {
    let scene = Scene::new(|options| {
        options.size = 20 * COST;
        options.eviction = Eviction::None;
    })
    .await;
    for slice in 0..30 {
        scene.fill(slice..slice + 1).await;
    }
    let usage = scene.volume.usage();
    assert_eq!((usage.blocks, usage.drops, usage.evicts), (20, 10, 0));
    assert!((0..20).all(|slice| scene.volume.contains(block(slice, SIZE))));
}

#[tokio::test]
async fn blocks_are_evicted_when_others_fill_the_disk() {
    let scene = Scene::new(|_| ()).await;
    scene.fill(0..40).await;
    let disk = scene.cache.disks[0].clone().unwrap();
    let short = DiskSpace { bytes: 1000 * COST, free_bytes: 90 * COST, ..VAST };
    *scene.room.0.lock().unwrap() = short;
    disk.make_room();
    let blocks = scene.volume.usage().blocks;
    assert!((25..=30).contains(&blocks), "{blocks} blocks are left");
    assert!(disk.is_full() && !disk.is_full_for_staging(), "it is still short");
    *scene.room.0.lock().unwrap() = DiskSpace { free_bytes: 110 * COST, ..short };
    disk.make_room();
    assert!(!disk.is_full());
    assert_eq!(scene.volume.usage().blocks, blocks);
}

#[tokio::test]
async fn blocks_are_evicted_when_inodes_run_out() {
    let scene = Scene::new(|_| ()).await;
    scene.fill(0..40).await;
    *scene.room.0.lock().unwrap() = DiskSpace { inodes: 1000, free_inodes: 80, ..VAST };
    scene.cache.disks[0].as_ref().unwrap().make_room();
    let blocks = scene.volume.usage().blocks;
    assert!((18..=20).contains(&blocks), "{blocks} blocks are left");
}

#[tokio::test]
async fn maintenance_makes_room_by_itself() {
    let scene = Scene::new(|_| ()).await;
    scene.fill(0..10).await;
    *scene.room.0.lock().unwrap() = DiskSpace { bytes: 1000 * COST, free_bytes: 0, ..VAST };
    until(|| scene.volume.usage().blocks == 0).await;
}

#[tokio::test]
async fn a_full_disk_neither_caches_nor_stages_blocks() {
    let scene = Scene::new(|_| ()).await;
    *scene.room.0.lock().unwrap() = DiskSpace { free_bytes: 0, ..VAST };
    scene.cache.disks[0].as_ref().unwrap().make_room();
    let block = block(1, SIZE);
    scene.keep(block, &body(block)).await;
    assert_eq!((scene.volume.usage().blocks, scene.volume.usage().drops), (0, 1));
    let error = scene.volume.stage(block, &body(block), 0).await.unwrap_err();
    assert!(error.to_string().contains("almost full"), "{error}");
    assert!(scene.volume.usage().is_short);
}

#[tokio::test]
async fn the_free_part_of_a_disk_stays_free() {
    let folder = tempfile::tempdir().unwrap();
    let room = DiskSpace { bytes: 40 * COST, free_bytes: 40 * COST, inodes: 0, free_inodes: 0 };
    let options = CacheOptions { free_ratio: 0.5, ..options(folder.path()) };
    let space = Arc::new(FakeSpace(Mutex::new(room)));
    let cache = Cache::open_with(options, space.clone()).await.unwrap();
    let volume = cache.volume(UUID, LAYOUT, None).unwrap();
    let scene = Scene { folder, cache, volume, room: space };
    scene.fill(0..60).await;
    let blocks = scene.volume.usage().blocks;
    assert!((15..=20).contains(&blocks), "{blocks} blocks");
}

#[tokio::test]
async fn unused_blocks_expire() {
    let scene = Scene::new(|options| options.expire = Duration::from_secs(1)).await;
    scene.fill(0..3).await;
    let staged = block(9, SIZE);
    scene.volume.stage(staged, &body(staged), 0).await.unwrap();
    until(|| scene.volume.usage().blocks == 1).await;
    until(|| scene.files() == 1).await;
    assert!(scene.volume.contains(staged));
}

#[tokio::test]
async fn staged_blocks_are_not_evicted() {
    let scene = Scene::new(|options| options.size = 10 * COST).await;
    for slice in 100..120 {
        let block = block(slice, SIZE);
        scene.volume.stage(block, &body(block), 0).await.unwrap();
    }
    scene.fill(0..50).await;
    assert!((100..120).all(|slice| scene.volume.contains(block(slice, SIZE))));
    assert_eq!(scene.volume.staged().await.len(), 20);
    for slice in 100..120 {
        scene.volume.unstage(block(slice, SIZE)).await;
    }
    assert!(scene.volume.usage().bytes <= 10 * COST, "uploaded ones count again");
}

#[tokio::test]
async fn the_number_of_blocks_being_staged_is_limited() {
    let scene = Scene::new(|options| options.max_stage_write = 2).await;
    let staging = &scene.cache.shared.staging_limit;
    let busy = (staging.enter(2).unwrap(), staging.enter(2).unwrap());
    let block = block(1, SIZE);
    let error = scene.volume.stage(block, &body(block), 0).await.unwrap_err();
    assert!(error.to_string().contains("too many"), "{error}");
    drop(busy);
    scene.volume.stage(block, &body(block), 0).await.unwrap();
}

#[tokio::test]
async fn a_volume_within_its_share_keeps_its_blocks_while_another_floods_the_disk() {
    let scene = Scene::new(|options| options.size = 50 * COST).await;
    let flood = scene.cache.volume("another", LAYOUT, None).unwrap();
    scene.fill(0..10).await;
    for slice in 0..300 {
        flood.put(block(slice, SIZE), body(block(slice, SIZE)));
    }
    scene.settle().await;
    assert_eq!(scene.volume.usage().blocks, 10);
    assert!(flood.usage().blocks <= 40);
    drop(flood);
    assert_eq!(scene.cache.disks[0].as_ref().unwrap().lock_state().accounting.blocks(), 10);
}

#[tokio::test]
async fn blocks_that_a_slow_disk_cannot_take_are_dropped_and_waiting_ones_are_read() {
    let scene = Scene::new(|_| ()).await;
    let disk = scene.cache.disks[0].clone().unwrap();
    disk.lock_state().write_queue.hold();
    let many = (64 << 20) / u64::from(LAYOUT.block_size);
    for slice in 0..many + 5 {
        let block = block(slice, LAYOUT.block_size);
        scene.volume.put(block, vec![1; block.size as usize].into());
    }
    let usage = scene.volume.usage();
    assert_eq!((usage.blocks, usage.drops, usage.memory_bytes), (many, 5, 64 << 20));
    let first = block(0, LAYOUT.block_size);
    assert_eq!(scene.volume.read_now(first, 5..8), Some(Bytes::from_static(&[1; 3])));
    assert_eq!(scene.read(first, 5..8).await, Some(Bytes::from_static(&[1; 3])));
    scene.volume.remove(first);
    scene.scanned().await;
    assert_eq!(scene.read(first, 5..8).await, None);
    disk.lock_state().write_queue.release();
    tokio::task::spawn_blocking(move || write_pending(&disk)).await.unwrap();
    assert_eq!(scene.volume.usage().memory_bytes, 0);
    assert!(!scene.path(first).exists() && scene.path(block(1, LAYOUT.block_size)).exists());
}

#[tokio::test]
async fn a_cache_in_memory_is_limited_and_holds_copies() {
    let scene = Scene::new(|options| {
        options.dirs.clear();
        options.size = 100_000;
    })
    .await;
    let large = Bytes::from(vec![7; 4 << 20]);
    for slice in 0..50 {
        scene.volume.put(block(slice, SIZE), large.slice(..SIZE as usize));
    }
    let usage = scene.volume.usage();
    assert_eq!((usage.blocks, usage.memory_bytes, usage.evicts), (10, 100_000, 40));
    assert!(large.is_unique(), "the cache holds on to the large buffer");
    let held = (0..50).find(|slice| scene.volume.contains(block(*slice, SIZE))).unwrap();
    scene.volume.remove(block(held, SIZE));
    assert_eq!(scene.read(block(held, SIZE), 0..1).await, None);
    scene.volume.put(block(1, 200_000), vec![0; 200_000].into());
    assert!(!scene.volume.contains(block(1, 200_000)), "larger than all of it");
}

#[tokio::test]
async fn a_cache_of_size_0_caches_nothing() {
    let scene = Scene::new(|options| options.size = 0).await;
    scene.volume.put(block(1, 10), body(block(1, 10)));
    assert_eq!(scene.read(block(1, 10), 0..10).await, None);
}

#[tokio::test]
async fn a_cache_in_memory_takes_a_part_of_its_budget() {
    let budget = Budget::new(8 << 20);
    let counted = Arc::clone(&budget);
    let scene = Scene::new(|options| {
        options.dirs.clear();
        options.memory = Some(counted);
    })
    .await;
    assert_eq!(budget.used(), 1 << 20);
    for slice in 1..100 {
        let block = block(slice, 100_000);
        scene.volume.put(block, body(block));
    }
    assert!(scene.volume.usage().bytes <= 1 << 20);
    drop(scene);
    assert_eq!(budget.used(), 0);
}
