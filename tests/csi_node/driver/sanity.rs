//! csi-sanity, the conformance test of the Kubernetes project, in full.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::csi::Node;
use crate::support::command::run;
use crate::support::timeout::within;

/// The time limit, including a first build of the suite.
const BUILD: Duration = Duration::from_mins(15);
const LIMIT: Duration = Duration::from_mins(10);
/// Calls of the suite that have a Secret, by the suite's names for them.
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

#[test]
fn csi_sanity_passes_in_full() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/csi-sanity.sh");
    let built = run(Command::new(script), BUILD).ok().stdout;
    within(LIMIT, move || {
        let mut node = Node::start();
        let secret = node.path("secrets/one");
        fs::create_dir_all(&secret).unwrap();
        for (key, value) in node.secrets() {
            fs::write(secret.join(key), value).unwrap();
        }
        assert!(node.stop());
        let secrets = node.path("secrets");
        node.restart(&["--secrets-dir", secrets.to_str().unwrap()]);
        fs::write(node.path("secrets.yaml"), secrets_of_all_calls(&node)).unwrap();
        fs::write(node.path("mutable.yaml"), "upload-limit: \"100\"\n").unwrap();
        let file = |name: &str| node.path(name).display().to_string();
        let mut suite = Command::new(built.trim());
        suite
            .arg(format!("-csi.endpoint=unix://{}", file("csi.sock")))
            .arg(format!("-csi.secrets={}", file("secrets.yaml")))
            .arg(format!("-csi.testvolumemutableparameters={}", file("mutable.yaml")))
            .arg(format!("-csi.mountdir={}", file("pods/mount")))
            .arg(format!("-csi.stagingdir={}", file("pods/staging")))
            .args(["-csi.testvolumesize=10485760", "-csi.testvolumeexpandsize=20971520"])
            .arg("-ginkgo.no-color");
        let ended = run(suite, LIMIT);
        let summary = ended.stdout.lines().find(|line| line.contains("Passed")).unwrap_or_default();
        println!("{summary}");
        assert!(ended.status.success() && summary.contains("0 Failed"), "{ended}\n{}", node.log());
    });
}

/// Returns the Secret for all calls, in the suite's format.
fn secrets_of_all_calls(node: &Node) -> String {
    let mut text = String::new();
    for call in CALLS {
        writeln!(text, "{call}:").unwrap();
        for (key, value) in node.secrets() {
            writeln!(text, "  {key}: {value:?}").unwrap();
        }
    }
    text
}
