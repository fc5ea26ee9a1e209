//! Staged blocks: durable, listed, and cached once they are uploaded.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::chunk::cache::disk::scan::STALE_AFTER;
use crate::error::Error;

#[tokio::test]
async fn a_staged_block_has_both_names_and_is_read_back_with_its_tier() {
    let scene = Scene::new(|_| ()).await;
    for (slice, tier) in [(1, 0), (2, 3)] {
        let block = block(slice, 40_000);
        scene.volume.stage(block, &body(block), tier).await.unwrap();
        assert_eq!(fs::metadata(scene.staged_path(block)).unwrap().nlink(), 2);
        assert_eq!(
            fs::metadata(scene.path(block)).unwrap().ino(),
            fs::metadata(scene.staged_path(block)).unwrap().ino()
        );
        assert_eq!(scene.volume.read_staged(block).await.unwrap(), (body(block), tier));
        assert_eq!(scene.read(block, 9..39_999).await, Some(body(block).slice(9..39_999)));
    }
    let usage = scene.volume.usage();
    assert_eq!((usage.staging_blocks, usage.staging_write_bytes), (2, 80_000));
}

#[tokio::test]
async fn staged_blocks_of_an_earlier_process_are_listed() {
    let scene = Scene::new(|_| ()).await;
    let (one, two) = (block(1, 10), block(2_000_000, 40_000));
    scene.volume.stage(one, &body(one), 0).await.unwrap();
    scene.volume.stage(two, &body(two), 2).await.unwrap();
    let scene = scene.reopen(|_| ()).await;
    let mut staged = scene.volume.staged().await;
    staged.sort();
    assert_eq!(staged, [(one, 0), (two, 2)]);
    scene.scanned().await;
    assert_eq!(scene.volume.usage().staging_blocks, 2);
}

#[tokio::test]
async fn an_uploaded_block_stays_cached() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 40_000);
    scene.volume.stage(block, &body(block), 1).await.unwrap();
    scene.volume.unstage(block).await;
    assert!(!scene.staged_path(block).exists());
    assert_eq!(scene.volume.staged().await, []);
    assert_eq!(scene.read(block, 0..40_000).await, Some(body(block)));
    assert!(matches!(scene.volume.read_staged(block).await, Err(Error::NotFound)));
    let usage = scene.volume.usage();
    assert_eq!((usage.staging_blocks, usage.blocks), (0, 1));
}

#[tokio::test]
async fn a_cache_in_memory_stages_nothing() {
    let scene = Scene::new(|options| options.dirs.clear()).await;
    let block = block(1, 10);
    assert!(scene.volume.stage(block, &body(block), 0).await.is_err());
    scene.volume.put(block, body(block));
    assert_eq!(scene.volume.read_now(block, 1..9), Some(body(block).slice(1..9)));
}

#[tokio::test(start_paused = true)]
async fn drafts_of_a_killed_process_are_removed_after_a_while() {
    let scene = Scene::new(|_| ()).await;
    let staged = block(1, 10);
    scene.volume.stage(staged, &body(staged), 0).await.unwrap();
    let folder = scene.staged_path(staged).parent().unwrap().to_owned();
    let (ours, theirs) = (folder.join("2_0_5.0123456789abcdef.tmp"), folder.join("3_0_5.tmp"));
    let reopened = scene.reopen(|_| {
        fs::write(&ours, "123").unwrap();
        fs::write(&theirs, "123").unwrap();
    });
    let scene = reopened.await;
    scene.scanned().await;
    assert!(ours.exists() && theirs.exists(), "somebody may be writing them");
    let old = std::time::SystemTime::now() - 2 * STALE_AFTER;
    fs::File::open(&ours).unwrap().set_modified(old).unwrap();
    tokio::time::sleep(2 * STALE_AFTER).await;
    while ours.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(theirs.exists(), "it is young");
    assert_eq!(scene.volume.staged().await, [(staged, 0)]);
}
