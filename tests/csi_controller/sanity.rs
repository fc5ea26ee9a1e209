//! csi-sanity, the conformance test of the Kubernetes project.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::bystander;
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

#[tokio::test(flavor = "multi_thread")]
async fn csi_sanity_passes_for_identity_and_controller() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/csi-sanity.sh");
    let built = command::run(Command::new(script), BUILD_LIMIT).ok();
    let place = Place::new();
    let secrets_dir = place.secrets_dir();
    let driver = Driver::start_with(&["--secrets-dir", secrets_dir.to_str().unwrap()]).await;
    let folder = place.folder.path();
    let node = folder.join("node.sock");
    let bystander = bystander::serve(&node, driver.channel().await.unwrap());
    std::fs::write(folder.join("secrets.yaml"), secrets(&place)).unwrap();
    std::fs::write(folder.join("mutable.yaml"), "upload-limit: \"100\"\n").unwrap();
    let mut suite = Command::new(built.stdout.trim());
    suite
        .arg(format!("-csi.endpoint=unix://{}", node.display()))
        .arg(format!("-csi.controllerendpoint=unix://{}", driver.socket.display()))
        .arg(format!("-csi.secrets={}", folder.join("secrets.yaml").display()))
        .arg(format!("-csi.testvolumemutableparameters={}", folder.join("mutable.yaml").display()))
        .arg(format!("-csi.mountdir={}", folder.join("mount").display()))
        .arg(format!("-csi.stagingdir={}", folder.join("staging").display()))
        .args(["-csi.testvolumesize=10485760", "-csi.testvolumeexpandsize=20971520"])
        .args(["-ginkgo.skip=Node Service", "-ginkgo.no-color"]);
    let ended = tokio::task::spawn_blocking(move || command::run(suite, LIMIT)).await.unwrap();
    bystander.abort();
    assert!(ended.status.success(), "{ended}");
    let ran = ended.stdout.lines().find(|line| line.contains("Passed")).unwrap_or_default();
    println!("{ran}");
    assert!(ran.contains("0 Failed"), "{ended}");
}
