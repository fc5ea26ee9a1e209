//! Failing disks: readers see only misses.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::*;
use crate::chunk::cache::disk::Disk;
use crate::chunk::cache::disk::health::HealthState;

impl Scene {
    fn disk(&self) -> Arc<Disk> {
        self.cache.disks[0].clone().unwrap()
    }
}

fn fail(disk: &Disk) {
    let outcome: io::Result<()> = disk.attempt(|| Err(Errno::IO.into()));
    assert!(outcome.is_err());
}

#[tokio::test]
async fn three_failures_make_a_disk_unstable_and_nothing_is_staged_on_it() {
    let scene = Scene::new(|_| ()).await;
    let (cached, staged) = (block(1, 1000), block(2, 1000));
    scene.keep(cached, &body(cached)).await;
    scene.volume.stage(staged, &body(staged), 0).await.unwrap();
    let disk = scene.disk();
    for _ in 0..3 {
        assert_eq!(disk.health_state(), HealthState::Normal);
        fail(&disk);
    }
    assert_eq!(disk.health_state(), HealthState::Unstable);
    assert_eq!(scene.read(cached, 0..1000).await, Some(body(cached)), "it is still used");
    assert!(scene.volume.stage(block(3, 10), &body(block(3, 10)), 0).await.is_err());
    assert_eq!(scene.volume.read_staged(staged).await.unwrap().0, body(staged));
}

#[tokio::test]
async fn a_missing_file_does_not_count_against_the_disk() {
    let scene = Scene::new(|_| ()).await;
    let disk = scene.disk();
    for _ in 0..10 {
        let _ = disk.attempt(|| std::fs::read(scene.folder.path().join("missing")));
        let _: io::Result<()> = disk.attempt(|| Err(Errno::NOSPC.into()));
    }
    assert_eq!(disk.health_state(), HealthState::Normal);
}

#[tokio::test]
async fn a_busy_unstable_disk_is_a_miss_and_loses_nothing() {
    let scene = Scene::new(|_| ()).await;
    scene.scanned().await;
    let (cached, staged) = (block(1, 1000), block(2, 1000));
    scene.keep(cached, &body(cached)).await;
    scene.volume.stage(staged, &body(staged), 0).await.unwrap();
    let disk = scene.disk();
    for _ in 0..3 {
        fail(&disk);
    }
    let release = Arc::new(AtomicBool::new(false));
    let hung: Vec<_> = (0..10)
        .map(|_| {
            let (disk, release) = (Arc::clone(&disk), Arc::clone(&release));
            std::thread::spawn(move || {
                disk.attempt(|| {
                    while !release.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    Ok(())
                })
            })
        })
        .collect();
    until(|| disk.attempt(|| Ok(())).is_err()).await;
    assert_eq!(scene.read(cached, 0..1000).await, None);
    assert_eq!(scene.read(staged, 0..1000).await, Some(body(staged)), "it is nowhere else");
    release.store(true, Ordering::Relaxed);
    for thread in hung {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(scene.read(cached, 0..1000).await, Some(body(cached)));
}

#[tokio::test]
async fn blocks_of_a_disk_that_is_down_go_to_the_others() {
    let scene = Scene::new(|options| {
        let parent = options.dirs[0].parent().unwrap().to_owned();
        options.dirs = ["a", "b"].map(|name| parent.join(name)).into();
    })
    .await;
    let disk = scene.disk();
    let staged = (1..1000)
        .map(|slice| block(slice, 10))
        .find(|block| scene.volume.disk_number(*block) == Some(0));
    let staged = staged.unwrap();
    scene.volume.stage(staged, &body(staged), 0).await.unwrap();
    disk.mark_down();
    assert_eq!(scene.volume.disk_number(staged), Some(1));
    for slice in 100..140 {
        scene.volume.put(block(slice, 10), body(block(slice, 10)));
    }
    scene.settle().await;
    for slice in 100..140 {
        assert_eq!(scene.read(block(slice, 10), 0..10).await, Some(body(block(slice, 10))));
    }
    assert_eq!(scene.volume.read_staged(staged).await.unwrap().0, body(staged));
    scene.volume.unstage(staged).await;
    assert_eq!(scene.volume.staged().await, []);
}

#[tokio::test]
async fn with_every_disk_down_all_reads_miss() {
    let scene = Scene::new(|_| ()).await;
    let block = block(1, 10);
    scene.keep(block, &body(block)).await;
    scene.disk().mark_down();
    assert_eq!(scene.read(block, 0..10).await, None);
    scene.volume.put(super::block(2, 10), body(super::block(2, 10)));
    scene.settle().await;
    assert_eq!(scene.volume.usage().drops, 1);
    scene.cache.close().await;
}
