//! A volume from its claim to its deletion, through controller and node, with the real kernel.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jfs::csi::proto::csi::volume_capability::access_mode::Mode;
use jfs::csi::proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use jfs::csi::proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest,
    CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, DeleteVolumeRequest, Volume,
    VolumeContentSource,
};

use crate::csi::{Node, Publication, capability};
use crate::support::command::poll;
use crate::support::timeout::{MOUNTED, within};

const MIB: i64 = 1 << 20;

/// Without a trash, so that data is deleted with the volume.
fn secrets(node: &Node) -> HashMap<String, String> {
    let mut secrets = node.secrets();
    secrets.insert("trash-days".to_owned(), "0".to_owned());
    secrets
}

fn create(node: &Node, name: &str, size: i64, source: Option<Type>) -> Volume {
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: 0 }),
        volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter, &[], "")],
        secrets: secrets(node),
        volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
        ..CreateVolumeRequest::default()
    };
    let made = node.block_on(node.controller().create_volume(request)).unwrap();
    made.into_inner().volume.unwrap()
}

fn publish(node: &Node, volume: &Volume, pod: &str) -> Publication {
    let mut publication = node.publication(&volume.volume_id, pod);
    publication.secrets = secrets(node);
    publication.context.clone_from(&volume.volume_context);
    node.publish(&publication).unwrap();
    publication
}

fn delete(node: &Node, volume: &str) {
    let request = DeleteVolumeRequest { volume_id: volume.to_owned(), secrets: secrets(node) };
    node.block_on(node.controller().delete_volume(request)).unwrap();
}

fn files_below(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

#[test]
fn a_dynamic_volume_works_from_its_claim_to_its_deletion() {
    within(MOUNTED, || {
        let node = Node::start();
        let volume = create(&node, "pvc-1", 10 * MIB, None);
        let (one, two) = (publish(&node, &volume, "one"), publish(&node, &volume, "two"));
        fs::write(one.target.join("f"), "first").unwrap();
        fs::write(two.target.join("large"), vec![7; 5 << 20]).unwrap();

        let expand = ControllerExpandVolumeRequest {
            volume_id: "pvc-1".to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 20 * MIB, limit_bytes: 0 }),
            secrets: secrets(&node),
            ..ControllerExpandVolumeRequest::default()
        };
        node.block_on(node.controller().controller_expand_volume(expand)).unwrap();
        let grown = || node.stats("pvc-1", &one.target).unwrap().usage[0].total == 20 * MIB;
        assert!(poll(Duration::from_mins(1), grown));

        let snapshot = CreateSnapshotRequest {
            source_volume_id: "pvc-1".to_owned(),
            name: "snapshot-1".to_owned(),
            secrets: secrets(&node),
            ..CreateSnapshotRequest::default()
        };
        let snapshot = node.block_on(node.controller().create_snapshot(snapshot)).unwrap();
        let snapshot = snapshot.into_inner().snapshot.unwrap();
        assert!(snapshot.ready_to_use);
        fs::write(one.target.join("f"), "second").unwrap();

        let id = snapshot.snapshot_id.clone();
        let source = Type::Snapshot(SnapshotSource { snapshot_id: id.clone() });
        let restored = create(&node, "pvc-2", 20 * MIB, Some(source));
        let source = Type::Volume(VolumeSource { volume_id: "pvc-1".to_owned() });
        let cloned = create(&node, "pvc-3", 20 * MIB, Some(source));
        let restored = publish(&node, &restored, "restored");
        let cloned = publish(&node, &cloned, "cloned");
        assert_eq!(fs::read(restored.target.join("f")).unwrap(), b"first");
        assert_eq!(fs::read(cloned.target.join("f")).unwrap(), b"second");
        assert_eq!(fs::read(cloned.target.join("large")).unwrap().len(), 5 << 20);
        assert!(!one.target.join("../.snapshots").exists());

        for publication in [&one, &two, &restored, &cloned] {
            node.unpublish(&publication.volume, &publication.target).unwrap();
        }
        let chunks = node.path("bucket/vol/chunks");
        assert!(files_below(&chunks) > 0);
        let gone = DeleteSnapshotRequest { snapshot_id: id, secrets: secrets(&node) };
        node.block_on(node.controller().delete_snapshot(gone)).unwrap();
        for volume in ["pvc-1", "pvc-2", "pvc-3"] {
            delete(&node, volume);
        }
        assert!(poll(Duration::from_mins(1), || files_below(&chunks) == 0), "{}", node.log());
    });
}

#[test]
fn a_bandwidth_limit_applies_to_a_volume_in_use() {
    within(MOUNTED, || {
        let node = Node::start();
        let volume = create(&node, "pvc-1", 100 * MIB, None);
        let publication = publish(&node, &volume, "web");
        let limit = |value: &str| {
            let request = ControllerModifyVolumeRequest {
                volume_id: "pvc-1".to_owned(),
                secrets: secrets(&node),
                mutable_parameters: HashMap::from([("upload-limit".to_owned(), value.to_owned())]),
            };
            node.block_on(node.controller().controller_modify_volume(request)).unwrap();
            node.publish(&publication).unwrap();
        };
        let write = || {
            let started = std::time::Instant::now();
            fs::write(publication.target.join("f"), vec![1; 4 << 20]).unwrap();
            started.elapsed()
        };
        // One megabyte per second: slower than any machine without the limit.
        limit("8");
        assert!(write() >= Duration::from_secs(3));
        limit("0");
        write();
    });
}
