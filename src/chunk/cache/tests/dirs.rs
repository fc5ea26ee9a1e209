//! Several directories, and directories that are shared, missing or reused.

use std::fs;

use super::*;
use crate::chunk::cache::hash_ring::legacy_owner;

fn three(options: &mut CacheOptions) {
    let parent = options.dirs[0].parent().unwrap().to_owned();
    options.dirs = ["a", "b", "c"].map(|name| parent.join(name)).into();
}

/// Returns which of three directories hold a block.
fn found_in(scene: &Scene, block: BlockKey) -> Vec<usize> {
    let dirs = ["a", "b", "c"].map(|name| scene.folder.path().join(name).join(UUID).join("raw"));
    (0..3).filter(|number| dirs[*number].join(LAYOUT.key(block)).exists()).collect()
}

#[tokio::test]
async fn blocks_are_spread_over_the_directories_and_found_again() {
    let scene = Scene::new(three).await;
    let blocks: Vec<BlockKey> = (0..60).map(|slice| block(slice, 1000)).collect();
    for block in &blocks {
        scene.volume.put(*block, body(*block));
    }
    scene.settle().await;
    let homes: Vec<usize> = blocks.iter().map(|block| found_in(&scene, *block)[0]).collect();
    assert!((0..3).all(|dir| homes.iter().filter(|home| **home == dir).count() > 5), "{homes:?}");
    let scene = scene.reopen(three).await;
    for block in &blocks {
        assert_eq!(scene.read(*block, 0..1000).await, Some(body(*block)));
    }
}

#[tokio::test]
async fn a_block_stored_by_an_older_client_is_found() {
    let scene = Scene::new(three).await;
    scene.scanned().await;
    let moved = (1..1000).map(|slice| block(slice, 1000)).find(|candidate| {
        scene.volume.put(*candidate, body(*candidate));
        let legacy = legacy_owner(&LAYOUT.key(*candidate), 3);
        scene.volume.disk_number(*candidate) != Some(legacy)
    });
    let moved = moved.unwrap();
    scene.settle().await;
    let (home, legacy) = (found_in(&scene, moved)[0], legacy_owner(&LAYOUT.key(moved), 3));
    let path = |number: usize| {
        let dir = scene.folder.path().join(["a", "b", "c"][number]);
        dir.join(UUID).join("raw").join(LAYOUT.key(moved))
    };
    fs::create_dir_all(path(legacy).parent().unwrap()).unwrap();
    fs::rename(path(home), path(legacy)).unwrap();
    let scene = scene.reopen(three).await;
    scene.scanned().await;
    assert_eq!(scene.read(moved, 0..1000).await, Some(body(moved)));
    assert!(scene.volume.contains(moved));
}

#[tokio::test]
async fn the_lock_file_keeps_the_id_of_the_directory() {
    let scene = Scene::new(|_| ()).await;
    let lock = scene.folder.path().join("cache").join(UUID).join(".lock");
    let id = fs::read_to_string(&lock).unwrap();
    assert_eq!(id.parse::<uuid::Uuid>().unwrap().to_string(), id);
    let scene = scene.reopen(|_| ()).await;
    assert_eq!(fs::read_to_string(&lock).unwrap(), id);
    fs::write(&lock, "").unwrap();
    let _scene = scene.reopen(|_| ()).await;
    assert_eq!(fs::read_to_string(&lock).unwrap().len(), 36, "an empty one is filled");
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b"), "a file").unwrap();
    let scene = Scene::within(folder, three).await;
    for slice in 0..30 {
        scene.volume.put(block(slice, 1000), body(block(slice, 1000)));
    }
    scene.settle().await;
    assert_eq!(scene.volume.usage().blocks, 30);
}

#[tokio::test]
async fn without_a_usable_directory_blocks_are_cached_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cache"), "a file").unwrap();
    let scene = Scene::within(folder, |_| ()).await;
    scene.volume.put(block(1, 10), body(block(1, 10)));
    assert_eq!(scene.volume.read_now(block(1, 10), 0..10), Some(body(block(1, 10))));
}

#[tokio::test]
async fn files_and_directories_have_the_modes_of_the_go_client() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new(|options| options.mode = 0o640).await;
    let block = block(1, 10);
    scene.keep(block, &body(block)).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scene.path(block)) & !0o040, 0o600, "the umask may take from the group");
    assert_eq!(mode(scene.path(block).parent().unwrap()), 0o770);
}

#[tokio::test]
async fn opening_a_volume_twice_returns_the_same_cache() {
    let scene = Scene::new(|_| ()).await;
    let again = scene.cache.volume(UUID, LAYOUT, Some(5)).unwrap();
    assert!(Arc::ptr_eq(&again, &scene.volume));
    let other = Layout { hash_prefix: true, ..LAYOUT };
    assert!(scene.cache.volume(UUID, other, None).is_err());
    for name in ["", "..", ".lock", "a/b"] {
        assert!(scene.cache.volume(name, LAYOUT, None).is_err(), "{name:?}");
    }
}
