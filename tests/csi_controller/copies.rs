use jfs::csi::proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use jfs::csi::proto::csi::{
    CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, GetSnapshotRequest,
    Snapshot, VolumeContentSource,
};
use jfs::meta::{Caller, Name};
use tonic::{Code, Status};

use crate::driver::{Driver, MIB, Place, fill, names, timed, volume};

async fn snapshot(
    driver: &Driver,
    place: &Place,
    of: &str,
    name: &str,
) -> Result<Snapshot, Status> {
    let request = CreateSnapshotRequest {
        source_volume_id: of.to_owned(),
        name: name.to_owned(),
        secrets: place.secrets.clone(),
        ..CreateSnapshotRequest::default()
    };
    let answer = driver.controller().await.create_snapshot(timed(request)).await?;
    Ok(answer.into_inner().snapshot.unwrap())
}

fn from(place: &Place, name: &str, source: Type) -> CreateVolumeRequest {
    let volume_content_source = Some(VolumeContentSource { r#type: Some(source) });
    CreateVolumeRequest { volume_content_source, ..volume(place, name, 100 * MIB) }
}

fn from_volume(place: &Place, name: &str, id: &str) -> CreateVolumeRequest {
    from(place, name, Type::Volume(VolumeSource { volume_id: id.to_owned() }))
}

fn from_snapshot(place: &Place, name: &str, id: &str) -> CreateVolumeRequest {
    from(place, name, Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() }))
}

#[tokio::test]
async fn a_clone_has_what_its_source_had_and_lives_on_its_own() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    let meta = place.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 3).await;
    let made = driver.create(from_volume(&place, "two", "one")).await.unwrap();
    assert!(made.content_source.is_some());
    meta.unlink(&Caller::root(), dir, &Name::new("file-0").unwrap()).await.unwrap();
    assert_eq!(names(&meta, "two").await, ["file-0", "file-1", "file-2"]);
    assert_eq!(names(&meta, "one").await, ["file-1", "file-2"]);
    assert_eq!(driver.create(from_volume(&place, "two", "one")).await.unwrap(), made);
    let error = driver.create(volume(&place, "two", 100 * MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let error = driver.create(from_volume(&place, "three", "nothing")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn a_snapshot_is_ready_at_once_and_can_be_restored() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    let meta = place.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 2).await;
    let taken = snapshot(&driver, &place, "one", "snap").await.unwrap();
    assert!(taken.ready_to_use && taken.creation_time.is_some());
    assert_eq!((taken.snapshot_id.as_str(), taken.source_volume_id.as_str()), ("snap", "one"));
    assert_eq!(names(&meta, ".snapshots/one/snap").await, ["file-0", "file-1"]);

    meta.unlink(&Caller::root(), dir, &Name::new("file-0").unwrap()).await.unwrap();
    assert_eq!(snapshot(&driver, &place, "one", "snap").await.unwrap(), taken);
    driver.create(from_snapshot(&place, "back", "snap")).await.unwrap();
    assert_eq!(names(&meta, "back").await, ["file-0", "file-1"]);

    driver.create(volume(&place, "other", MIB)).await.unwrap();
    let error = snapshot(&driver, &place, "other", "snap").await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let error = snapshot(&driver, &place, "nothing", "new").await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn a_snapshot_outlives_its_volume_and_goes_when_it_is_deleted() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    let taken = snapshot(&driver, &place, "one", "snap").await.unwrap();
    driver.delete(&place, "one").await.unwrap();
    let mut controller = driver.controller().await;
    let get =
        || GetSnapshotRequest { snapshot_id: "snap".to_owned(), secrets: place.secrets.clone() };
    let found = controller.get_snapshot(timed(get())).await.unwrap().into_inner();
    assert_eq!(found.snapshot.unwrap(), taken);
    for _ in 0..2 {
        let (snapshot_id, secrets) = ("snap".to_owned(), place.secrets.clone());
        let request = DeleteSnapshotRequest { snapshot_id, secrets };
        controller.delete_snapshot(timed(request)).await.unwrap();
    }
    let error = controller.get_snapshot(timed(get())).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let meta = place.meta().await;
    assert_eq!(names(&meta, ".snapshots").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_too_small_for_its_source_is_refused() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    let meta = place.meta().await;
    let (dir, _) = meta.resolve("one").await.unwrap();
    fill(&meta, dir, 20).await;
    meta.flush().await.unwrap();
    let mut request = from_volume(&place, "two", "one");
    request.capacity_range.as_mut().unwrap().required_bytes = 4096;
    let error = driver.create(request).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    assert!(meta.resolve("two").await.is_err());
}

#[tokio::test]
async fn a_deep_tree_is_in_a_snapshot() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "one", 100 * MIB)).await.unwrap();
    let meta = place.meta().await;
    let (mut dir, _) = meta.resolve("one").await.unwrap();
    let name = Name::new("d").unwrap();
    for _ in 0..800 {
        dir = meta.mkdir(&Caller::root(), dir, &name, 0o755, 0).await.unwrap().0;
    }
    snapshot(&driver, &place, "one", "deep").await.unwrap();
    let (copy, _) = meta.resolve(".snapshots/one/deep").await.unwrap();
    assert_eq!(meta.summary(copy, true).await.unwrap().dirs, 801);
}
