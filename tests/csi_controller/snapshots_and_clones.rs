use jfs::csi::proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use jfs::csi::proto::csi::{
    CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, GetSnapshotRequest,
    Snapshot, VolumeContentSource,
};
use jfs::meta::{Caller, Name};
use tonic::{Code, Status};

use crate::driver::{Driver, FileSystem, MIB, fill, names, timed, volume};

async fn snapshot(
    driver: &Driver,
    file_system: &FileSystem,
    of: &str,
    name: &str,
) -> Result<Snapshot, Status> {
    let request = CreateSnapshotRequest {
        source_volume_id: of.to_owned(),
        name: name.to_owned(),
        secrets: file_system.secrets.clone(),
        ..CreateSnapshotRequest::default()
    };
    let response = driver.controller().await.create_snapshot(timed(request)).await?;
    Ok(response.into_inner().snapshot.unwrap())
}

fn from(file_system: &FileSystem, name: &str, source: Type) -> CreateVolumeRequest {
    let volume_content_source = Some(VolumeContentSource { r#type: Some(source) });
    CreateVolumeRequest { volume_content_source, ..volume(file_system, name, 100 * MIB) }
}

fn from_volume(file_system: &FileSystem, name: &str, id: &str) -> CreateVolumeRequest {
    from(file_system, name, Type::Volume(VolumeSource { volume_id: id.to_owned() }))
}

fn from_snapshot(file_system: &FileSystem, name: &str, id: &str) -> CreateVolumeRequest {
    from(file_system, name, Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() }))
}

#[tokio::test]
async fn a_clone_is_a_copy_that_is_independent_of_its_source() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 3).await;
    let created = driver.create(from_volume(&file_system, "two", "one")).await.unwrap();
    assert!(created.content_source.is_some());
    meta.unlink(&Caller::root(), dir, &Name::new("file-0").unwrap()).await.unwrap();
    assert_eq!(names(&meta, "two").await, ["file-0", "file-1", "file-2"]);
    assert_eq!(names(&meta, "one").await, ["file-1", "file-2"]);
    assert_eq!(driver.create(from_volume(&file_system, "two", "one")).await.unwrap(), created);
    let error = driver.create(volume(&file_system, "two", 100 * MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let error = driver.create(from_volume(&file_system, "three", "nothing")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn a_snapshot_is_ready_at_once_and_can_be_restored() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 2).await;
    let taken = snapshot(&driver, &file_system, "one", "snap").await.unwrap();
    assert!(taken.ready_to_use && taken.creation_time.is_some());
    assert_eq!((taken.snapshot_id.as_str(), taken.source_volume_id.as_str()), ("snap", "one"));
    assert_eq!(names(&meta, ".snapshots/one/snap").await, ["file-0", "file-1"]);

    meta.unlink(&Caller::root(), dir, &Name::new("file-0").unwrap()).await.unwrap();
    assert_eq!(snapshot(&driver, &file_system, "one", "snap").await.unwrap(), taken);
    driver.create(from_snapshot(&file_system, "back", "snap")).await.unwrap();
    assert_eq!(names(&meta, "back").await, ["file-0", "file-1"]);

    driver.create(volume(&file_system, "other", MIB)).await.unwrap();
    let error = snapshot(&driver, &file_system, "other", "snap").await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let error = snapshot(&driver, &file_system, "nothing", "new").await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn a_snapshot_outlives_its_volume_until_it_is_deleted() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    let taken = snapshot(&driver, &file_system, "one", "snap").await.unwrap();
    driver.delete(&file_system, "one").await.unwrap();
    let mut controller = driver.controller().await;
    let get = || GetSnapshotRequest {
        snapshot_id: "snap".to_owned(),
        secrets: file_system.secrets.clone(),
    };
    let found = controller.get_snapshot(timed(get())).await.unwrap().into_inner();
    assert_eq!(found.snapshot.unwrap(), taken);
    for _ in 0..2 {
        let (snapshot_id, secrets) = ("snap".to_owned(), file_system.secrets.clone());
        let request = DeleteSnapshotRequest { snapshot_id, secrets };
        controller.delete_snapshot(timed(request)).await.unwrap();
    }
    let error = controller.get_snapshot(timed(get())).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let meta = file_system.meta().await;
    assert_eq!(names(&meta, ".snapshots").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_too_small_for_its_source_is_refused() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 20).await;
    meta.flush().await.unwrap();
    let mut request = from_volume(&file_system, "two", "one");
    request.capacity_range.as_mut().unwrap().required_bytes = 4096;
    let error = driver.create(request).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    assert!(meta.resolve("two").await.is_err());
}

#[tokio::test]
async fn a_snapshot_contains_a_deep_tree() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 100 * MIB)).await.unwrap();
    let meta = file_system.meta().await;
    let (mut dir, _) = meta.resolve("one").await.unwrap();
    let name = Name::new("d").unwrap();
    for _ in 0..800 {
        dir = meta.mkdir(&Caller::root(), dir, &name, 0o755, 0).await.unwrap().0;
    }
    snapshot(&driver, &file_system, "one", "deep").await.unwrap();
    let (copy, _) = meta.resolve(".snapshots/one/deep").await.unwrap();
    assert_eq!(meta.summary(copy, true).await.unwrap().dirs, 801);
}
