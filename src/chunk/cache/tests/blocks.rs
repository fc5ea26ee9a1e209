//! Blocks that are put can be read until they are removed or damaged.

use std::fs;

use super::*;

#[tokio::test]
async fn a_block_is_read_back_in_ranges() {
    let scene = Scene::new(|_| ()).await;
    let block = block(7, 100_000);
    let body = body(block);
    scene.keep(block, &body).await;
    for range in [0..100_000, 0..1, 99_999..100_000, 32_767..32_769, 40_000..90_000] {
        let expected = body.slice(range.start as usize..range.end as usize);
        assert_eq!(scene.read(block, range).await, Some(expected));
    }
    assert!(scene.volume.contains(block));
}

#[tokio::test]
async fn a_missing_block_or_an_invalid_range_is_a_miss() {
    let scene = Scene::new(|_| ()).await;
    assert_eq!(scene.read(block(1, 10), 0..10).await, None);
    scene.keep(block(7, 10), &body(block(7, 10))).await;
    for range in [0..11, 10..11, 5..5] {
        assert_eq!(scene.read(block(7, 10), range).await, None);
    }
    assert_eq!(scene.read(block(7, 11), 0..10).await, None);
}

#[tokio::test]
async fn a_body_of_another_length_is_not_cached() {
    let scene = Scene::new(|_| ()).await;
    scene.keep(block(7, 10), &Bytes::from_static(b"short")).await;
    scene.keep(block(8, 0), &Bytes::new()).await;
    assert_eq!(scene.volume.usage().blocks, 0);
}

#[tokio::test]
async fn the_file_matches_the_go_client() {
    let scene = Scene::new(|_| ()).await;
    let block = block(3, 2);
    scene.keep(block, &Bytes::from_static(b"x\n")).await;
    let path = scene.folder.path().join("cache").join(UUID).join("raw/chunks/0/0/3_0_2");
    assert_eq!(fs::read(path).unwrap(), [0x78, 0x0a, 0xb8, 0xce, 0x48, 0xd5]);
}

#[tokio::test]
async fn a_later_process_finds_cached_blocks() {
    let scene = Scene::new(|_| ()).await;
    let block = block(7, 100_000);
    scene.volume.put(block, body(block));
    let scene = scene.reopen(|_| ()).await;
    assert_eq!(scene.read(block, 0..100_000).await, Some(body(block)));
    scene.scanned().await;
    assert!(scene.volume.contains(block));
    assert_eq!(scene.volume.usage().bytes, 100_000 + 4096);
}

#[tokio::test]
async fn a_removed_block_leaves_the_disk() {
    let scene = Scene::new(|_| ()).await;
    scene.scanned().await;
    let block = block(7, 1000);
    scene.keep(block, &body(block)).await;
    scene.read(block, 0..1000).await.unwrap();
    scene.volume.remove(block);
    assert!(!scene.volume.contains(block));
    assert_eq!(scene.read(block, 0..1000).await, None);
    until(|| !scene.path(block).exists()).await;
}

#[tokio::test]
async fn a_file_that_another_client_removed_is_a_miss_and_can_be_cached_again() {
    let scene = Scene::new(|_| ()).await;
    scene.scanned().await;
    let block = block(7, 1000);
    scene.keep(block, &body(block)).await;
    fs::remove_file(scene.path(block)).unwrap();
    assert_eq!(scene.read(block, 0..1000).await, None);
    scene.keep(block, &body(block)).await;
    assert_eq!(scene.read(block, 0..1000).await, Some(body(block)));
}

#[tokio::test]
async fn a_scan_finds_files_that_another_client_wrote() {
    let scene = Scene::new(|options| options.scan_interval = Duration::from_millis(1)).await;
    scene.scanned().await;
    let (ours, theirs) = (block(7, 1000), block(8, 1000));
    scene.keep(ours, &body(ours)).await;
    let file = fs::read(scene.path(ours)).unwrap();
    fs::write(scene.path(theirs), file).unwrap();
    until(|| scene.volume.contains(theirs)).await;
    assert_eq!(scene.read(theirs, 0..1000).await, Some(body(ours)));
}

#[tokio::test]
async fn read_now_reads_an_open_file_from_the_page_cache() {
    let scene = Scene::new(|_| ()).await;
    let block = block(7, 100_000);
    scene.keep(block, &body(block)).await;
    assert_eq!(scene.volume.read_now(block, 5..10), None, "nobody has opened it");
    scene.read(block, 0..1).await.unwrap();
    assert_eq!(scene.volume.read_now(block, 5..99_999), Some(body(block).slice(5..99_999)));
    assert_eq!(scene.volume.read_now(block, 5..100_001), None);
}
