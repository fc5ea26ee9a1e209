use jfs::csi::proto::csi::volume_capability::access_mode::Mode;
use jfs::csi::proto::csi::volume_capability::{AccessType, BlockVolume};
use jfs::csi::proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeRequest,
    ControllerModifyVolumeRequest,
};
use jfs::csi::records::{self, VolumeRecord};
use jfs::meta::Ino;
use jfs::meta::record::QuotaKey;
use tonic::Code;

use crate::driver::{Driver, FileSystem, MIB, capability, timed, volume};

async fn quota(file_system: &FileSystem, path: &str) -> i64 {
    let meta = file_system.meta().await;
    let (dir, _) = meta.resolve(path).await.unwrap();
    meta.quota(QuotaKey::Dir(dir)).await.unwrap().unwrap().max_space
}

#[tokio::test]
async fn a_volume_is_a_directory_with_a_quota_of_exactly_its_size() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let bytes = 10 * MIB + 1;
    let created = driver.create(volume(&file_system, "one", bytes)).await.unwrap();
    assert_eq!((created.volume_id.as_str(), created.capacity_bytes), ("one", bytes));
    assert_eq!(created.volume_context["subPath"], "one");
    assert_eq!(created.volume_context["capacity"], bytes.to_string());
    let context = format!("{:?}", created.volume_context);
    assert!(!context.contains(&file_system.url), "{context}");

    let meta = file_system.meta().await;
    let (_, attr) = meta.resolve("one").await.unwrap();
    assert!(attr.is_dir());
    assert_eq!(attr.mode, 0o777);
    assert_eq!(quota(&file_system, "one").await, bytes);
    let record: VolumeRecord = records::read(&meta, "one").await.unwrap().unwrap();
    assert_eq!((record.path.as_str(), record.capacity), ("one", bytes.cast_unsigned()));
}

#[tokio::test]
async fn a_repeated_call_returns_the_same_and_another_size_is_refused() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let first = driver.create(volume(&file_system, "one", 10 * MIB)).await.unwrap();
    assert_eq!(driver.create(volume(&file_system, "one", 10 * MIB)).await.unwrap(), first);
    let error = driver.create(volume(&file_system, "one", 20 * MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let mut range = volume(&file_system, "one", 5 * MIB);
    range.capacity_range = Some(CapacityRange { required_bytes: 5 * MIB, limit_bytes: 15 * MIB });
    assert_eq!(driver.create(range).await.unwrap(), first);
}

#[tokio::test]
async fn another_controller_knows_existing_volumes() {
    let file_system = FileSystem::new();
    let first = {
        let mut driver = Driver::start().await;
        let created = driver.create(volume(&file_system, "one", MIB)).await.unwrap();
        assert!(driver.stop(), "the driver did not stop cleanly");
        created
    };
    let secrets = file_system.secrets_dir();
    let driver = Driver::start_with(&["--secrets-dir", secrets.to_str().unwrap()]).await;
    let request = ControllerGetVolumeRequest { volume_id: "one".to_owned() };
    let found = driver.controller().await.controller_get_volume(timed(request)).await.unwrap();
    assert_eq!(found.into_inner().volume.unwrap(), first);
}

#[tokio::test]
async fn an_invalid_request_is_refused_and_creates_nothing() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "good", MIB)).await.unwrap();
    let with = |change: &dyn Fn(&mut jfs::csi::proto::csi::CreateVolumeRequest)| {
        let mut request = volume(&file_system, "bad", MIB);
        change(&mut request);
        request
    };
    let parameter = |key: &'static str, value: &'static str| {
        with(&move |request| {
            request.parameters.insert(key.to_owned(), value.to_owned());
        })
    };
    let requests = [
        with(&|request| request.name = "a/b".to_owned()),
        with(&|request| request.name = ".jfs-csi".to_owned()),
        with(&|request| request.volume_capabilities.clear()),
        with(&|request| {
            let mut block = capability(Mode::SingleNodeWriter);
            block.access_type = Some(AccessType::Block(BlockVolume {}));
            request.volume_capabilities = vec![block];
        }),
        parameter("colour", "red"),
        parameter("mountOptions", "colour=red"),
        parameter("pathPattern", "${.pvc.labels.team}"),
        parameter("pathPattern", "../elsewhere"),
        with(&|request| {
            request.mutable_parameters.insert("colour".to_owned(), "red".to_owned());
        }),
        with(&|request| {
            request.secrets.insert("colour".to_owned(), "red".to_owned());
        }),
    ];
    for request in requests {
        let error = driver.create(request.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}: {request:?}");
    }
    let meta = file_system.meta().await;
    let names = crate::driver::names(&meta, "/").await;
    assert_eq!(names, [".jfs-csi", "good"]);
}

#[tokio::test]
async fn owner_mode_and_path_follow_the_class() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let mut request = volume(&file_system, "one", MIB);
    for (key, value) in [
        ("owner", "1000:1001"),
        ("mode", "0750"),
        ("mountOptions", "subdir=base/dir"),
        ("pathPattern", "${.pvc.namespace}/${.pvc.name}"),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "web"),
        ("juicefs/clean-cache", "true"),
    ] {
        request.parameters.insert(key.to_owned(), value.to_owned());
    }
    let created = driver.create(request.clone()).await.unwrap();
    assert_eq!(created.volume_context["subPath"], "web/data");
    assert_eq!(created.volume_context["juicefs/clean-cache"], "true");
    assert_eq!(created.volume_context["mountOptions"], "subdir=base/dir");
    let meta = file_system.meta().await;
    let (_, attr) = meta.resolve("base/dir/web/data").await.unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (1000, 1001, 0o750));
    assert_eq!(driver.create(request).await.unwrap(), created);
}

#[tokio::test]
async fn a_volume_of_another_driver_is_adopted_unchanged() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "first", MIB)).await.unwrap();
    let id = "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab";
    let meta = file_system.meta().await;
    let dir = meta.ensure_dir(id).await.unwrap();
    let limits = jfs::meta::Limits { space: Some(3 << 30), inodes: None };
    meta.quota_set(QuotaKey::Dir(dir), limits, false).await.unwrap();

    let request = ControllerGetVolumeRequest { volume_id: id.to_owned() };
    let found = driver.controller().await.controller_get_volume(timed(request)).await.unwrap();
    assert_eq!(found.into_inner().volume.unwrap().capacity_bytes, 3 << 30);
    let created = driver.create(volume(&file_system, id, 3 << 30)).await.unwrap();
    assert_eq!(created.capacity_bytes, 3 << 30);
    assert_eq!(meta.resolve(id).await.unwrap().0, dir);
}

#[tokio::test]
async fn a_volume_grows_to_the_byte_and_never_shrinks() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "one", 10 * MIB)).await.unwrap();
    let mut controller = driver.controller().await;
    for (requested, size) in [(11 * MIB + 7, 11 * MIB + 7), (5 * MIB, 11 * MIB + 7)] {
        let request = ControllerExpandVolumeRequest {
            volume_id: "one".to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: requested, limit_bytes: 0 }),
            secrets: file_system.secrets.clone(),
            volume_capability: None,
        };
        let response =
            controller.controller_expand_volume(timed(request)).await.unwrap().into_inner();
        assert_eq!((response.capacity_bytes, response.node_expansion_required), (size, false));
        assert_eq!(quota(&file_system, "one").await, size);
    }
    let request = ControllerExpandVolumeRequest {
        volume_id: "other".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: MIB, limit_bytes: 0 }),
        secrets: file_system.secrets.clone(),
        volume_capability: None,
    };
    let error = controller.controller_expand_volume(timed(request)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn mutable_parameters_are_recorded_for_the_nodes() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let mut request = volume(&file_system, "one", MIB);
    request.mutable_parameters.insert("upload-limit".to_owned(), "100".to_owned());
    driver.create(request).await.unwrap();
    let modify = |key: &str, value: &str| ControllerModifyVolumeRequest {
        volume_id: "one".to_owned(),
        secrets: file_system.secrets.clone(),
        mutable_parameters: [(key.to_owned(), value.to_owned())].into(),
    };
    let mut controller = driver.controller().await;
    controller.controller_modify_volume(timed(modify("download-limit", "200"))).await.unwrap();
    controller.controller_modify_volume(timed(modify("inodes", "50"))).await.unwrap();
    let error = controller.controller_modify_volume(timed(modify("colour", "red"))).await;
    assert_eq!(error.unwrap_err().code(), Code::InvalidArgument);
    let meta = file_system.meta().await;
    let record: VolumeRecord = records::read(&meta, "one").await.unwrap().unwrap();
    let recorded: Vec<(&str, &str)> =
        record.parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(recorded, [("download-limit", "200"), ("inodes", "50"), ("upload-limit", "100")]);
    let (dir, _) = meta.resolve("one").await.unwrap();
    assert_ne!(dir, Ino::ROOT);
    let quota = meta.quota(QuotaKey::Dir(dir)).await.unwrap().unwrap();
    assert_eq!((quota.max_space, quota.max_inodes), (MIB, 50));
}
