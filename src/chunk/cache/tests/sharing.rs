//! Several clients on one directory, crashed clients, and concurrent use.

use std::fs::{self, File};
use std::time::SystemTime;

use super::*;

fn age(path: &Path, by: Duration) {
    File::open(path).unwrap().set_modified(SystemTime::now() - by).unwrap();
}

#[tokio::test]
async fn drafts_of_a_crashed_client_are_removed_after_a_minute() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 10);
    scene.keep(block, &body(block)).await;
    let dir = scene.path(block).parent().unwrap().to_owned();
    let drafts = ["5_0_10.tmp", "6_0_10.123456.tmp"].map(|name| dir.join(name));
    let staged = scene.staged_path(block).with_file_name("7_0_10.tmp");
    let (young, empty) = (dir.join("8_0_10.tmp"), dir.parent().unwrap().join("77"));
    fs::create_dir_all(&empty).unwrap();
    fs::create_dir_all(staged.parent().unwrap()).unwrap();
    for draft in drafts.iter().chain([&young, &staged]) {
        fs::write(draft, "half").unwrap();
    }
    for old in drafts.iter().chain([&staged, &empty]) {
        age(old, Duration::from_secs(61));
    }
    let scene = scene.reopen(|_| ()).await;
    scene.scanned().await;
    assert!(!drafts.iter().chain([&staged, &empty]).any(|old| old.exists()));
    assert!(young.exists(), "someone may still be writing it");
    assert_eq!(scene.read(block, 0..10).await, Some(body(block)));
    assert_eq!(scene.volume.usage().blocks, 1);
}

#[tokio::test]
async fn foreign_files_are_left_alone() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 10);
    scene.keep(block, &body(block)).await;
    let foreign = [
        scene.path(block).with_file_name("notes"),
        scene.path(block).with_file_name("1_0"),
        scene.folder.path().join("cache/other-volume/raw/chunks/0/0/1_0_10"),
    ];
    for path in &foreign {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "something").unwrap();
        age(path, Duration::from_secs(9999));
    }
    let scene = scene.reopen(|options| options.size = 1).await;
    scene.scanned().await;
    assert_eq!(scene.volume.usage().blocks, 0, "there is no room for any");
    assert!(foreign.iter().all(|path| path.exists()));
}

#[tokio::test]
async fn a_staged_block_without_its_second_name_is_read_and_cached_after_upload() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 40_000);
    scene.volume.stage(block, &body(block), 2).await.unwrap();
    fs::remove_file(scene.path(block)).unwrap();
    assert_eq!(scene.read(block, 5..50).await, Some(body(block).slice(5..50)));
    let scene = scene.reopen(|_| ()).await;
    assert_eq!(scene.read(block, 5..50).await, Some(body(block).slice(5..50)), "not yet scanned");
    scene.scanned().await;
    assert_eq!(scene.read(block, 5..50).await, Some(body(block).slice(5..50)));
    scene.volume.unstage(block).await;
    assert!(scene.path(block).exists() && !scene.staged_path(block).exists());
    assert_eq!(scene.read(block, 5..50).await, Some(body(block).slice(5..50)));
}

#[tokio::test]
async fn a_cached_block_that_is_staged_later_has_both_names() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 1000);
    scene.keep(block, &body(block)).await;
    scene.volume.stage(block, &body(block), 1).await.unwrap();
    fs::remove_file(scene.staged_path(block)).unwrap();
    assert_eq!(scene.read(block, 0..1000).await, Some(body(block)));
}

#[tokio::test]
async fn a_removed_block_is_no_longer_staged() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 1000);
    scene.volume.stage(block, &body(block), 0).await.unwrap();
    scene.volume.remove(block);
    until(|| !scene.staged_path(block).exists() && !scene.path(block).exists()).await;
    assert_eq!(scene.volume.usage().staging_blocks, 0);
    assert_eq!(scene.volume.staged().await, []);
}

#[tokio::test]
async fn a_staged_block_that_another_client_uploaded_can_be_evicted_after_a_scan() {
    let scene = Scene::new(|options| options.scan_interval = Duration::from_millis(1)).await;
    let block = block(1, 1000);
    scene.volume.stage(block, &body(block), 0).await.unwrap();
    fs::remove_file(scene.staged_path(block)).unwrap();
    until(|| scene.volume.usage().staging_blocks == 0).await;
    assert!(scene.volume.contains(block));
}

#[tokio::test]
async fn two_caches_can_use_one_directory() {
    let scene = Scene::new(|options| options.size = 40 * 5096).await;
    let mut options = options(scene.folder.path());
    options.size = 20 * 5096;
    let other = Cache::open_with(options, Arc::new(FakeSpace(Mutex::new(VAST)))).await.unwrap();
    let theirs = other.volume(UUID, LAYOUT, None).unwrap();
    for round in 0..10 {
        for slice in 0..50 {
            let block = block(slice, 1000);
            let (one, two) = if (round + slice) % 2 == 0 {
                (&scene.volume, &theirs)
            } else {
                (&theirs, &scene.volume)
            };
            one.put(block, body(block));
            for volume in [one, two] {
                let read = volume.read(block, 0..1000).await;
                assert!(read.is_none() || read == Some(body(block)));
            }
        }
    }
    other.close().await;
    assert_eq!(theirs.usage().drops, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_puts_reads_and_removals_never_show_a_partial_block() {
    let scene = Scene::new(|options| options.size = 30 * (40_000 + 4096)).await;
    let work = (0..8_u64).map(|worker| {
        let volume = Arc::clone(&scene.volume);
        tokio::spawn(async move {
            let mut hits = 0_u64;
            for step in 0..300_u64 {
                let block = block((worker * 7 + step * 13) % 60, 40_000);
                match step % 5 {
                    0 | 1 => volume.put(block, body(block)),
                    2 if worker == 0 => volume.remove(block),
                    _ => {
                        let whole = volume.read(block, 0..40_000).await;
                        let part = volume.read_now(block, 30_000..35_000);
                        let sound = |read: &Option<Bytes>, range: Range<usize>| {
                            read.as_ref().is_none_or(|read| *read == body(block).slice(range))
                        };
                        assert!(sound(&whole, 0..40_000) && sound(&part, 30_000..35_000));
                        hits += u64::from(whole.is_some());
                    }
                }
            }
            hits
        })
    });
    let mut hits = 0;
    for worker in work.collect::<Vec<_>>() {
        hits += worker.await.unwrap();
    }
    assert!(hits > 0, "nothing was ever read");
    scene.settle().await;
    let usage = scene.volume.usage();
    assert!(usage.bytes <= 30 * (40_000 + 4096), "{usage:?}");
    assert!(scene.cache.disks[0].as_ref().unwrap().files.len() <= 256);
}

#[tokio::test]
async fn a_file_that_another_client_removed_is_closed_to_free_its_space() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 1000);
    scene.keep(block, &body(block)).await;
    scene.read(block, 0..1).await.unwrap();
    let files = &scene.cache.disks[0].as_ref().unwrap().files;
    assert_eq!(files.len(), 1);
    fs::remove_file(scene.path(block)).unwrap();
    files.close_removed();
    assert_eq!(files.len(), 0);
}
