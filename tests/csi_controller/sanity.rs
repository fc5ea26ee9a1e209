//! csi-sanity, the conformance test of the Kubernetes project.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::driver::{Driver, Place};
use crate::support::command;

/// Building the suite, on a machine that has nothing of it.
const BUILD_LIMIT: Duration = Duration::from_mins(15);
const LIMIT: Duration = Duration::from_mins(10);
/// Calls of the suite that carry a Secret, by the names that it gives them.
const CALLS: &[&str] = &[
    "CreateVolumeSecret",
    "DeleteVolumeSecret",
    "ControllerPublishVolumeSecret",
    "ControllerUnpublishVolumeSecret",
    "ControllerValidateVolumeCapabilitiesSecret",
    "NodeStageVolumeSecret",
    "NodePublishVolumeSecret",
    "CreateSnapshotSecret",
    "DeleteSnapshotSecret",
    "ControllerExpandVolumeSecret",
    "ListSnapshotsSecret",
    "ControllerModifyVolumeSecret",
];

/// The Secret for all calls, as the suite reads it.
fn secrets(place: &Place) -> String {
    let mut text = String::new();
    for call in CALLS {
        text.push_str(call);
        text.push_str(":\n");
        for (key, value) in &place.secrets {
            text.push_str(&format!("  {key}: {value:?}\n"));
        }
    }
    text
}

#[tokio::test]
async fn csi_sanity_passes_for_identity_and_controller() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/csi-sanity.sh");
    let built = command::run(Command::new(script), BUILD_LIMIT).ok();
    let place = Place::new();
    let secrets_dir = place.secrets_dir();
    let driver = Driver::start_with(&["--secrets-dir", secrets_dir.to_str().unwrap()]).await;
    let (file, mutable) =
        (place.folder.path().join("secrets.yaml"), place.folder.path().join("m.yaml"));
    std::fs::write(&file, secrets(&place)).unwrap();
    std::fs::write(&mutable, "upload-limit: \"100\"\n").unwrap();
    let mut suite = Command::new(built.stdout.trim());
    suite
        .arg("-csi.endpoint")
        .arg(format!("unix://{}", driver.socket.display()))
        .arg("-csi.secrets")
        .arg(&file)
        .arg("-csi.testvolumemutableparameters")
        .arg(&mutable)
        .arg("-csi.mountdir")
        .arg(place.folder.path().join("mount"))
        .arg("-csi.stagingdir")
        .arg(place.folder.path().join("staging"))
        .args(["-csi.testvolumesize", "10485760", "-csi.testvolumeexpandsize", "20971520"])
        .args(["-ginkgo.focus", "Identity|Controller|ListSnapshots|CreateSnapshot|DeleteSnapshot|ExpandVolume|ModifyVolume"])
        .args(["-ginkgo.skip", "Node Service"]);
    let ended = command::run(suite, LIMIT);
    assert!(ended.status.success() && ended.stdout.contains("Passed"), "{ended}");
}
