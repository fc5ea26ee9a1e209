use std::time::Duration;

use bytes::Bytes;
use jfs::csi::records::{self, VolumeRecord};
use jfs::meta::record::QuotaKey;
use jfs::meta::record::attr::flag;
use jfs::meta::{AttrSet, Caller, Meta, Name, Registration};
use jfs::volume::{Volume, VolumeOptions};

use crate::driver::{Driver, MIB, Place, fill, names, volume};

/// Waits until nothing is left to be removed.
async fn swept(meta: &Meta) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !names(meta, ".jfs-csi/deleting").await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the deleted volume is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes a file with content.
async fn write(place: &Place, dir: &str, name: &str) {
    let meta = Meta::connect(&place.url, jfs::meta::Options::default()).await.unwrap();
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
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    write(&place, "one", "file").await;
    assert_eq!(place.objects(), 1);
    let meta = place.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    driver.delete(&place, "one").await.unwrap();
    assert_eq!(names(&meta, "/").await, [".jfs-csi"]);
    assert!(records::read::<VolumeRecord>(&meta, "one").await.unwrap().is_none());
    swept(&meta).await;
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), None);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while place.objects() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "objects of the volume are left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    driver.delete(&place, "one").await.unwrap();
    driver.create(volume(&place, "one", 5 * MIB)).await.unwrap();
    assert_eq!(names(&meta, "one").await, Vec::<String>::new());
}

#[tokio::test]
async fn with_a_trash_the_files_of_a_deleted_volume_are_in_it() {
    let (driver, place) =
        (Driver::start().await, Place::with(&[("format-options", "trash-days=1")]));
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    let meta = place.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 3).await;
    driver.delete(&place, "one").await.unwrap();
    swept(&meta).await;
    let hours = meta.hours().await.unwrap();
    let mut kept = 0;
    for (_, _, hour) in hours {
        kept += meta.entries(hour, false).await.unwrap().len();
    }
    assert_eq!(kept, 4, "three files and their directory");
}

#[tokio::test]
async fn what_is_not_a_dynamic_volume_is_left_alone() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", MIB)).await.unwrap();
    let meta = place.meta().await;
    meta.ensure_dir("data").await.unwrap();
    for id in ["data", "nothing", ".trash", "../one", "a/b"] {
        driver.delete(&place, id).await.unwrap();
    }
    assert_eq!(names(&meta, "/").await, [".jfs-csi", "data", "one"]);
    let id = "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab";
    meta.ensure_dir(id).await.unwrap();
    driver.delete(&place, id).await.unwrap();
    assert_eq!(names(&meta, "/").await, [".jfs-csi", "data", "one"]);
}

#[tokio::test]
async fn a_directory_that_another_volume_uses_is_kept() {
    let (driver, place) = (Driver::start().await, Place::new());
    for name in ["one", "two"] {
        let mut request = volume(&place, name, MIB);
        request.parameters.insert("pathPattern".to_owned(), "shared/dir".to_owned());
        driver.create(request).await.unwrap();
    }
    let meta = place.meta().await;
    driver.delete(&place, "one").await.unwrap();
    assert!(meta.resolve("shared/dir").await.is_ok());
    driver.delete(&place, "two").await.unwrap();
    assert!(meta.resolve("shared/dir").await.is_err());
    assert!(meta.resolve("shared").await.is_ok());
}

#[tokio::test]
async fn a_removal_that_was_cut_off_is_taken_up_by_the_next_driver() {
    let place = Place::new();
    let mut driver = Driver::start().await;
    driver.create(volume(&place, "one", 1000 * MIB)).await.unwrap();
    let meta = place.meta().await;
    let (top, _) = meta.resolve("one").await.unwrap();
    for number in 0..20 {
        let name = Name::new(format!("dir-{number}")).unwrap();
        let (dir, _) = meta.mkdir(&Caller::root(), top, &name, 0o755, 0).await.unwrap();
        fill(&meta, dir, 20).await;
    }
    driver.delete(&place, "one").await.unwrap();
    driver.kill();
    let left = names(&meta, ".jfs-csi/deleting").await;
    assert_eq!(left.len(), 1, "the removal was too fast for this test: {left:?}");

    let secrets = place.secrets_dir();
    let _driver = Driver::start_with(&["--secrets-dir", secrets.to_str().unwrap()]).await;
    swept(&meta).await;
    assert!(meta.getattr(top).await.is_err());
}

#[tokio::test]
async fn a_deep_tree_is_deleted_and_keeps_nobody_from_being_deleted() {
    let (driver, place) = (Driver::start().await, Place::new());
    for name in ["deep", "flat"] {
        driver.create(volume(&place, name, 100 * MIB)).await.unwrap();
    }
    let meta = place.meta().await;
    let (top, _) = meta.resolve("deep").await.unwrap();
    let (mut dir, name) = (top, Name::new("d").unwrap());
    for _ in 0..1500 {
        dir = meta.mkdir(&Caller::root(), dir, &name, 0o755, 0).await.unwrap().0;
    }
    for name in ["deep", "flat"] {
        driver.delete(&place, name).await.unwrap();
    }
    swept(&meta).await;
    assert!(meta.getattr(dir).await.is_err());
    driver.create(volume(&place, "flat", MIB)).await.unwrap();
}

#[tokio::test]
async fn a_volume_that_cannot_be_removed_keeps_no_other_from_it() {
    let (driver, place) = (Driver::start().await, Place::new());
    for name in ["a", "b", "c"] {
        driver.create(volume(&place, name, 100 * MIB)).await.unwrap();
    }
    let meta = place.meta().await;
    let (dir, _) = meta.resolve("b").await.unwrap();
    fill(&meta, dir, 3).await;
    let kept = meta.lookup(&Caller::root(), dir, &Name::new("file-1").unwrap()).await.unwrap().0;
    let frozen = AttrSet { flags: Some(flag::IMMUTABLE), ..AttrSet::default() };
    meta.setattr(&Caller::root(), kept, frozen).await.unwrap();
    for name in ["a", "b", "c"] {
        driver.delete(&place, name).await.unwrap();
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
    let kept_in = meta.entries(dir, false).await.unwrap();
    assert_eq!(kept_in.iter().map(|entry| entry.ino).collect::<Vec<_>>(), [kept]);
}
