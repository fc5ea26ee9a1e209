//! csi-sanity, the conformance test of the Kubernetes project: building it, and running it on a node.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::csi::Node;
use crate::support::command::run;

/// The time limit for a first build.
const BUILD: Duration = Duration::from_mins(15);
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

/// Builds the suite once, and returns its path.
pub fn build() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/csi-sanity.sh");
    run(Command::new(script), BUILD).ok().stdout.trim().to_owned()
}

/// Writes the Secret of the node's file system for the driver, and returns the options to start it with.
pub fn driver_options(node: &Node) -> [String; 2] {
    let secret = node.path("secrets/one");
    fs::create_dir_all(&secret).unwrap();
    for (key, value) in node.secrets() {
        fs::write(secret.join(key), value).unwrap();
    }
    ["--secrets-dir".to_owned(), node.path("secrets").display().to_string()]
}

/// Returns the command that runs the suite on a node, whose driver it finds at `socket`.
pub fn command(suite: &str, node: &Node, socket: &Path) -> Command {
    fs::write(node.path("secrets.yaml"), secrets_of_all_calls(node)).unwrap();
    fs::write(node.path("mutable.yaml"), "upload-limit: \"100\"\n").unwrap();
    let file = |name: &str| node.path(name).display().to_string();
    let mut command = Command::new(suite);
    command
        .arg(format!("-csi.endpoint=unix://{}", socket.display()))
        .arg(format!("-csi.secrets={}", file("secrets.yaml")))
        .arg(format!("-csi.testvolumemutableparameters={}", file("mutable.yaml")))
        .arg(format!("-csi.mountdir={}", file("pods/mount")))
        .arg(format!("-csi.stagingdir={}", file("pods/staging")))
        .args(["-csi.testvolumesize=10485760", "-csi.testvolumeexpandsize=20971520"])
        .arg("-ginkgo.no-color");
    command
}

/// Returns the line that counts passed and failed specs.
pub fn summary(output: &str) -> &str {
    output.lines().rfind(|line| line.contains("Passed")).unwrap_or_default()
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
