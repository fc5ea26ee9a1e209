//! Damaged files are misses and are removed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use super::*;

/// Changes a byte of a cached block's file. Returns whether the whole block can still be read.
async fn survives(scene: &Scene, block: BlockKey, at: u64) -> bool {
    let file = OpenOptions::new().read(true).write(true).open(scene.path(block)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    let read = scene.read(block, 0..block.size).await;
    assert!(read.is_none() || read == Some(body(block)), "served damaged bytes");
    read.is_some()
}

#[tokio::test]
async fn a_changed_byte_anywhere_is_a_miss_and_the_file_is_removed() {
    let scene = Scene::new(|_| ()).await;
    scene.scanned().await;
    let size = 70_000;
    // First and last byte of each segment and of each checksum.
    let data = [0, 32_767, 32_768, 65_535, 65_536, 69_999];
    let checksums = (70_000..70_012).step_by(3);
    for (slice, at) in (1..).zip(data.into_iter().chain(checksums)) {
        let block = block(slice, size);
        scene.keep(block, &body(block)).await;
        assert!(!survives(&scene, block, at).await, "byte {at}");
        assert!(!scene.path(block).exists() && !scene.volume.contains(block), "byte {at}");
        scene.keep(block, &body(block)).await;
        assert_eq!(scene.read(block, 0..size).await, Some(body(block)), "kept again");
    }
}

#[tokio::test]
async fn an_intact_part_is_served_although_another_is_damaged() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 70_000);
    scene.keep(block, &body(block)).await;
    let file = OpenOptions::new().write(true).open(scene.path(block)).unwrap();
    file.write_all_at(b"damaged", 40_000).unwrap();
    assert_eq!(scene.read(block, 100..32_768).await, Some(body(block).slice(100..32_768)));
    assert_eq!(scene.read(block, 32_767..32_769).await, None);
}

#[tokio::test]
async fn read_now_does_not_serve_a_damaged_open_file_either() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 70_000);
    scene.keep(block, &body(block)).await;
    scene.read(block, 0..70_000).await.unwrap();
    let file = OpenOptions::new().write(true).open(scene.path(block)).unwrap();
    file.write_all_at(b"damaged", 40_000).unwrap();
    assert_eq!(scene.volume.read_now(block, 0..70_000), None);
    assert_eq!(scene.read(block, 0..70_000).await, None);
}

#[tokio::test]
async fn a_file_of_any_other_length_is_a_miss() {
    let scene = Scene::new(|_| ()).await;
    scene.scanned().await;
    let size = 70_000;
    let block = block(1, size);
    scene.keep(block, &body(block)).await;
    let whole = fs::read(scene.path(block)).unwrap();
    assert_eq!(whole.len(), 70_012);
    for length in [0, 1, 32_768, 69_999, 70_001, 70_004, 70_007, 70_008, 70_011] {
        fs::write(scene.path(block), &whole[..length]).unwrap();
        assert_eq!(scene.read(block, 0..size).await, None, "{length} bytes");
        assert!(!scene.path(block).exists(), "{length} bytes");
        scene.keep(block, &body(block)).await;
    }
    // The data and nothing else: a file without checksums.
    fs::remove_file(scene.path(block)).unwrap();
    fs::write(scene.path(block), &whole[..70_000]).unwrap();
    scene.cache.disks[0].as_ref().unwrap().files.close_removed();
    assert_eq!(scene.read(block, 0..size).await, Some(body(block)));
}

#[tokio::test]
async fn a_damaged_footer_only_loses_the_tier() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 40_000);
    scene.volume.stage(block, &body(block), 3).await.unwrap();
    let file = OpenOptions::new().write(true).open(scene.staged_path(block)).unwrap();
    file.write_all_at(b"?", 40_008).unwrap();
    assert_eq!(scene.volume.read_staged(block).await.unwrap(), (body(block), 0));
    assert_eq!(scene.read(block, 0..40_000).await, Some(body(block)));
}

#[tokio::test]
async fn a_damaged_staged_block_is_an_error_and_is_kept() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 40_000);
    scene.volume.stage(block, &body(block), 0).await.unwrap();
    let file = OpenOptions::new().write(true).open(scene.staged_path(block)).unwrap();
    file.write_all_at(b"?", 100).unwrap();
    assert!(scene.volume.read_staged(block).await.unwrap_err().to_string().contains("1_0_40000"));
    assert_eq!(scene.read(block, 0..40_000).await, None);
    assert!(scene.staged_path(block).exists() && scene.path(block).exists());
}

#[tokio::test]
async fn a_directory_in_place_of_a_file_is_a_miss() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 100);
    fs::create_dir_all(scene.path(block)).unwrap();
    assert_eq!(scene.read(block, 0..100).await, None);
    scene.keep(block, &body(block)).await;
    assert_eq!(scene.read(block, 0..100).await, None);
}
