use jfs::csi::proto::csi::{
    CreateSnapshotRequest, GetCapacityRequest, ListSnapshotsRequest, ListVolumesRequest,
    ListVolumesResponse,
};
use tonic::Code;

use crate::driver::{Driver, FileSystem, MIB, timed, volume};

async fn page(driver: &Driver, limit: i32, token: &str) -> ListVolumesResponse {
    let request = ListVolumesRequest { max_entries: limit, starting_token: token.to_owned() };
    driver.controller().await.list_volumes(timed(request)).await.unwrap().into_inner()
}

fn ids(page: &ListVolumesResponse) -> Vec<String> {
    page.entries.iter().map(|entry| entry.volume.as_ref().unwrap().volume_id.clone()).collect()
}

#[tokio::test]
async fn volumes_of_all_file_systems_are_listed_in_pages() {
    let driver = Driver::start().await;
    let file_systems = [FileSystem::new(), FileSystem::new()];
    for (file_system, names) in file_systems.iter().zip([["a", "b", "c"], ["d", "e", "f"]]) {
        for name in names {
            driver.create(volume(file_system, name, MIB)).await.unwrap();
        }
    }
    let mut all = ids(&page(&driver, 0, "").await);
    all.sort();
    assert_eq!(all, ["a", "b", "c", "d", "e", "f"]);

    let first = page(&driver, 2, "").await;
    assert_eq!(first.entries.len(), 2);
    // The last entry of a page may be deleted meanwhile.
    let gone = ids(&first)[1].clone();
    for file_system in &file_systems {
        driver.delete(file_system, &gone).await.unwrap();
    }
    let mut seen = ids(&first);
    let mut token = first.next_token;
    while !token.is_empty() {
        let next = page(&driver, 2, &token).await;
        seen.extend(ids(&next));
        token = next.next_token;
    }
    seen.sort();
    assert_eq!(seen, all);
    let request = ListVolumesRequest { max_entries: 0, starting_token: "colour".to_owned() };
    let error = driver.controller().await.list_volumes(timed(request)).await.unwrap_err();
    assert_eq!(error.code(), Code::Aborted);
}

#[tokio::test]
async fn snapshots_are_listed_by_id_by_volume_and_in_pages() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let mut controller = driver.controller().await;
    for (of, name) in [("one", "s1"), ("one", "s2"), ("two", "s3")] {
        driver.create(volume(&file_system, of, MIB)).await.unwrap();
        let request = CreateSnapshotRequest {
            source_volume_id: of.to_owned(),
            name: name.to_owned(),
            secrets: file_system.secrets.clone(),
            ..CreateSnapshotRequest::default()
        };
        controller.create_snapshot(timed(request)).await.unwrap();
    }
    let plain = ListSnapshotsRequest::default();
    let by_volume = ListSnapshotsRequest { source_volume_id: "one".to_owned(), ..plain.clone() };
    let by_id = ListSnapshotsRequest { snapshot_id: "s3".to_owned(), ..plain.clone() };
    let by_both = ListSnapshotsRequest { snapshot_id: "s3".to_owned(), ..by_volume.clone() };
    let by_secret = ListSnapshotsRequest { secrets: file_system.secrets.clone(), ..plain.clone() };
    let unknown = ListSnapshotsRequest { source_volume_id: "none".to_owned(), ..plain.clone() };
    for (request, want) in [
        (plain, vec!["s1", "s2", "s3"]),
        (by_volume, vec!["s1", "s2"]),
        (by_id, vec!["s3"]),
        (by_both, vec![]),
        (by_secret.clone(), vec!["s1", "s2", "s3"]),
        (unknown, vec![]),
    ] {
        let response = controller.list_snapshots(timed(request)).await.unwrap().into_inner();
        let ids: Vec<String> =
            response.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect();
        assert_eq!(ids, want);
    }
    let request = ListSnapshotsRequest { max_entries: 2, ..by_secret };
    let response = controller.list_snapshots(timed(request.clone())).await.unwrap().into_inner();
    assert_eq!(response.entries.len(), 2);
    let request = ListSnapshotsRequest { starting_token: response.next_token, ..request };
    let response = controller.list_snapshots(timed(request)).await.unwrap().into_inner();
    assert_eq!((response.entries.len(), response.next_token.as_str()), (1, ""));
}

#[tokio::test]
async fn the_capacity_is_the_free_space_of_the_file_system() {
    let driver = Driver::start().await;
    let mut controller = driver.controller().await;
    let error = controller.get_capacity(timed(GetCapacityRequest::default())).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    let file_system = FileSystem::with(&[("capacity", "1")]);
    driver.create(volume(&file_system, "one", MIB)).await.unwrap();
    let response = controller.get_capacity(timed(GetCapacityRequest::default())).await.unwrap();
    let left = response.into_inner().available_capacity;
    assert!((1 << 30) - MIB < left && left < 1 << 30, "{left}");
}
