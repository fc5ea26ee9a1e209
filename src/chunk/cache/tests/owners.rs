//! Owners share a cache without sharing blocks.

use std::fs;
use std::sync::Arc;

use super::*;
use crate::chunk::cache::CacheOwner;
use crate::error::Error;

fn owner(id: &str) -> CacheOwner {
    CacheOwner { id: id.repeat(64), takes_unowned: false }
}

impl Scene {
    fn part(&self, owner: &CacheOwner) -> Arc<VolumeCache> {
        self.cache.owned_volume(UUID, Some(owner), LAYOUT, None).unwrap()
    }

    /// Counts the directories in the cache.
    fn dirs(&self) -> usize {
        fs::read_dir(self.folder.path().join("cache")).unwrap().count()
    }
}

/// Returns a scene whose cache was never used.
async fn unused() -> Scene {
    let scene = Scene::new(|_| ()).await;
    let Scene { folder, cache, volume, .. } = scene;
    cache.close().await;
    drop((volume, cache));
    fs::remove_dir_all(folder.path().join("cache").join(UUID)).unwrap();
    let room = Arc::new(FakeSpace(Mutex::new(VAST)));
    let cache = Cache::open_with(options(folder.path()), room.clone()).await.unwrap();
    let volume = cache.owned_volume("other", Some(&owner("z")), LAYOUT, None).unwrap();
    Scene { folder, cache, volume, room }
}

#[tokio::test]
async fn an_owner_finds_its_blocks_and_another_with_the_same_uuid_does_not() {
    let scene = unused().await;
    let (mine, theirs) = (scene.part(&owner("a")), scene.part(&owner("b")));
    let (one, two) = (block(1, 100), block(2, 100));
    mine.put(one, body(one));
    theirs.put(two, body(two));
    scene.settle().await;
    assert_eq!(mine.read(one, 0..100).await, Some(body(one)));
    assert_eq!(theirs.read(one, 0..100).await, None);
    assert_eq!(mine.read(two, 0..100).await, None);
    assert!(Arc::ptr_eq(&mine, &scene.part(&owner("a"))), "opened again, it is the same");
    assert_eq!(scene.dirs(), 3);
}

#[tokio::test]
async fn a_directory_keeps_its_owner_across_processes() {
    let scene = unused().await;
    let staged = block(1, 100);
    scene.part(&owner("a")).stage(staged, &body(staged), 0).await.unwrap();
    scene.cache.close().await;
    let room = Arc::new(FakeSpace(Mutex::new(VAST)));
    let cache = Cache::open_with(options(scene.folder.path()), room).await.unwrap();
    // The other owner opens first this time.
    let theirs = cache.owned_volume(UUID, Some(&owner("b")), LAYOUT, None).unwrap();
    assert!(theirs.staged().await.is_empty(), "nothing to upload to another's bucket");
    assert_eq!(theirs.read(staged, 0..100).await, None);
    theirs.remove(staged);
    let mine = cache.owned_volume(UUID, Some(&owner("a")), LAYOUT, None).unwrap();
    assert_eq!(mine.staged().await.len(), 1);
}

#[tokio::test]
async fn a_directory_without_an_owner_is_taken_over_only_if_allowed() {
    let scene = Scene::new(|_| ()).await;
    let known = block(1, 100);
    scene.keep(known, &body(known)).await;
    let careful = scene.part(&owner("a"));
    assert_eq!(careful.read(known, 0..100).await, None);
    let takes = CacheOwner { takes_unowned: true, ..owner("b") };
    assert_eq!(scene.part(&takes).read(known, 0..100).await, Some(body(known)));
}

#[tokio::test]
async fn staged_blocks_without_an_owner_are_never_lost() {
    let scene = Scene::new(|_| ()).await;
    let staged = block(1, 100);
    scene.volume.stage(staged, &body(staged), 0).await.unwrap();
    let refused = scene.cache.owned_volume(UUID, Some(&owner("a")), LAYOUT, None).err().unwrap();
    assert!(matches!(&refused, Error::Refused(why) if why.contains(UUID)), "{refused}");
    let takes = CacheOwner { takes_unowned: true, ..owner("a") };
    assert_eq!(scene.part(&takes).staged().await.len(), 1);
}
