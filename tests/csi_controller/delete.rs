use std::time::Duration;

use bytes::Bytes;
use jfs::csi::records::{self, VolumeRecord};
use jfs::meta::record::QuotaKey;
use jfs::meta::record::attr::flag;
use jfs::meta::{AttrSet, Caller, Meta, Name, Registration};
use jfs::volume::{Volume, VolumeOptions};

use crate::driver::{Driver, FileSystem, MIB, fill, names, volume};

/// Waits until all deleted trees are removed.
async fn wait_for_deletion(meta: &Meta) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !names(meta, ".jfs-csi/deleting").await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the deleted volume still exists");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes a file with content.
async fn write(file_system: &FileSystem, dir: &str, name: &str) {
    let meta = Meta::connect(&file_system.url, jfs::meta::Options::default()).await.unwrap();
    meta.start(Registration::None).await.unwrap();
    let volume = Volume::open(meta, VolumeOptions::default()).await.unwrap();
    let meta = volume.meta();
    let (dir, _) = meta.resolve(dir).await.unwrap();
    let name = Name::new(name).unwrap();
    let (ino, _) = meta.create(&Caller::root(), dir, &name, 0o644, 0, true).await.unwrap();
    let id = meta.new_slice().await.unwrap();
    let mut upload = volume.store().upload(id, 0);
    upload.put(0, Bytes::from_static(b"some bytes"), None);
    upload.finish().await.unwrap();
    let slice = jfs::meta::record::Slice { pos: 0, id, size: 10, off: 0, len: 10 };
    meta.write(ino, 0, 0, slice, jfs::meta::Timestamp::now()).await.unwrap();
    meta.close_file(ino).await.unwrap();
    volume.close(true).await.unwrap();
}

#[tokio::test]
async fn a_deleted_volume_is_gone_at_once_and_its_objects_soon_after() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    write(&file_system, "one", "file").await;
    assert_eq!(file_system.objects(), 1);
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    driver.delete(&file_system, "one").await.unwrap();
    assert_eq!(names(&meta, "/").await, [".jfs-csi"]);
    assert!(records::read::<VolumeRecord>(&meta, "one").await.unwrap().is_none());
    wait_for_deletion(&meta).await;
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), None);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while file_system.objects() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "objects of the volume remain");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    driver.delete(&file_system, "one").await.unwrap();
    driver.create(volume(&file_system, "one", 5 * MIB)).await.unwrap();
    assert_eq!(names(&meta, "one").await, Vec::<String>::new());
}

#[tokio::test]
async fn the_files_of_a_deleted_volume_go_to_the_trash() {
    let (driver, file_system) =
        (Driver::start().await, FileSystem::with(&[("format-options", "trash-days=1")]));
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 3).await;
    driver.delete(&file_system, "one").await.unwrap();
    wait_for_deletion(&meta).await;
    let hours = meta.hours().await.unwrap();
    let mut remaining = 0;
    for (_, _, hour) in hours {
        remaining += meta.entries(hour, false).await.unwrap().len();
    }
    assert_eq!(remaining, 4, "three files and their directory");
}

#[tokio::test]
async fn directories_that_are_not_dynamic_volumes_are_left_alone() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", MIB)).await.unwrap();
    let meta = file_system.meta().await;
    meta.ensure_dir("data").await.unwrap();
    for id in ["data", "nothing", ".trash", "../one", "a/b"] {
        driver.delete(&file_system, id).await.unwrap();
    }
    assert_eq!(names(&meta, "/").await, [".jfs-csi", "data", "one"]);
    let id = "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab";
    meta.ensure_dir(id).await.unwrap();
    driver.delete(&file_system, id).await.unwrap();
    assert_eq!(names(&meta, "/").await, [".jfs-csi", "data", "one"]);
}

#[tokio::test]
async fn a_directory_that_another_volume_uses_is_kept() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    for name in ["one", "two"] {
        let mut request = volume(&file_system, name, MIB);
        request.parameters.insert("pathPattern".to_owned(), "shared/dir".to_owned());
        driver.create(request).await.unwrap();
    }
    let meta = file_system.meta().await;
    driver.delete(&file_system, "one").await.unwrap();
    assert!(meta.resolve("shared/dir").await.is_ok());
    driver.delete(&file_system, "two").await.unwrap();
    assert!(meta.resolve("shared/dir").await.is_err());
    assert!(meta.resolve("shared").await.is_ok());
}

#[tokio::test]
async fn an_interrupted_deletion_is_continued_by_the_next_driver() {
    let file_system = FileSystem::new();
    let mut driver = Driver::start().await;
    driver.create(volume(&file_system, "one", 1000 * MIB)).await.unwrap();
    let meta = file_system.meta().await;
    let (top, _) = meta.resolve("one").await.unwrap();
    for number in 0..20 {
        let name = Name::new(format!("dir-{number}")).unwrap();
        let (dir, _) = meta.mkdir(&Caller::root(), top, &name, 0o755, 0).await.unwrap();
        fill(&meta, dir, 20).await;
    }
    driver.delete(&file_system, "one").await.unwrap();
    driver.kill();
    let left = names(&meta, ".jfs-csi/deleting").await;
    assert_eq!(left.len(), 1, "the deletion was too fast for this test: {left:?}");

    let secrets = file_system.secrets_dir();
    let _driver = Driver::start_with(&["--secrets-dir", secrets.to_str().unwrap()]).await;
    wait_for_deletion(&meta).await;
    assert!(meta.getattr(top).await.is_err());
}

#[tokio::test]
async fn a_deep_tree_is_deleted_and_does_not_block_other_deletions() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    for name in ["deep", "flat"] {
        driver.create(volume(&file_system, name, 100 * MIB)).await.unwrap();
    }
    let meta = file_system.meta().await;
    let (top, _) = meta.resolve("deep").await.unwrap();
    let (mut dir, name) = (top, Name::new("d").unwrap());
    for _ in 0..1500 {
        dir = meta.mkdir(&Caller::root(), dir, &name, 0o755, 0).await.unwrap().0;
    }
    for name in ["deep", "flat"] {
        driver.delete(&file_system, name).await.unwrap();
    }
    wait_for_deletion(&meta).await;
    assert!(meta.getattr(dir).await.is_err());
    driver.create(volume(&file_system, "flat", MIB)).await.unwrap();
}

#[tokio::test]
async fn a_volume_that_cannot_be_deleted_does_not_block_others() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    for name in ["a", "b", "c"] {
        driver.create(volume(&file_system, name, 100 * MIB)).await.unwrap();
    }
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve("b").await.unwrap();
    fill(&meta, dir, 3).await;
    let remaining =
        meta.lookup(&Caller::root(), dir, &Name::new("file-1").unwrap()).await.unwrap().0;
    let frozen = AttrSet { flags: Some(flag::IMMUTABLE), ..AttrSet::default() };
    meta.setattr(&Caller::root(), remaining, frozen).await.unwrap();
    for name in ["a", "b", "c"] {
        driver.delete(&file_system, name).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        let left = names(&meta, ".jfs-csi/deleting").await;
        if left.len() == 1 {
            assert!(left[0].starts_with("b-"), "{left:?}");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{left:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let remaining_entries = meta.entries(dir, false).await.unwrap();
    assert_eq!(remaining_entries.iter().map(|entry| entry.ino).collect::<Vec<_>>(), [remaining]);
}
