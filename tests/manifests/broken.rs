//! Checks that the checker finds mistakes: each entry breaks one thing, and names the expected
//! finding.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::checker::{Checker, repository};
use crate::{EXAMPLES, SNAPSHOTS};

/// A file under `deploy/`, a text in it, its replacement, and the expected finding.
type Break = (&'static str, &'static str, &'static str, &'static str);

const NODE: &str = "kubernetes/base/node.yaml";
const CONTROLLER: &str = "kubernetes/base/controller.yaml";
const KEEPER: &str = "kubernetes/base/keeper.yaml";
const RBAC: &str = "kubernetes/base/rbac.yaml";
const NETWORK: &str = "kubernetes/base/networkpolicy.yaml";
const DRIVER: &str = "kubernetes/base/csidriver.yaml";
const BASE: &str = "kubernetes/base/kustomization.yaml";

#[test]
fn mistakes_that_an_api_server_refuses_are_found() {
    all_found(&[
        (DRIVER, "attachRequired:", "attachRequried:", "unknown field"),
        (DRIVER, "fsGroupPolicy: None", "fsGroupPolicy: Maybe", "fsGroupPolicy"),
        (NODE, "privileged: true", "privileged: false", "Bidirectional"),
        (
            NODE,
            "name: state\n              mountPath",
            "name: sate\n              mountPath",
            "sate",
        ),
        (NODE, "cpu: 250m", "cpu: quarter", "quantities"),
        (
            NODE,
            "periodSeconds: 15",
            "periodSeconds: 15\n            periodSeconds: 1",
            "already defined",
        ),
        (
            CONTROLLER,
            "        app.kubernetes.io/component: controller\n      annotations",
            "        app.kubernetes.io/component: control\n      annotations",
            "selector",
        ),
        (CONTROLLER, "containerPort: 8081", "containerPort: 80810", "between 1 and 65535"),
        (RBAC, "verbs: [patch]", "verbs: []", "verbs"),
        (
            "examples/static.yaml",
            "storage: 100Gi\n  accessModes: [ReadWriteMany]\n  persistent",
            "storage: -1\n  accessModes: [ReadWriteMany]\n  persistent",
            "greater than zero",
        ),
        (
            "examples/single-pod.yaml",
            "[ReadWriteOncePod]",
            "[ReadWriteOncePod, ReadWriteMany]",
            "accessModes",
        ),
        ("examples/attributes-class.yaml", "storage.k8s.io/v1", "storage.k8s.io/v2", "no kind"),
        ("examples/secret.yaml", "stringData", "stringdata", "unknown field"),
        (
            "examples/snapshot.yaml",
            "deletionPolicy: Delete",
            "deletePolicy: Delete",
            "unknown field",
        ),
    ]);
}

#[test]
fn mistakes_that_only_a_cluster_would_show_are_found() {
    all_found(&[
        (NODE, "--mode=node", "--mode=nodes", "unknown mode"),
        (NODE, "--state-dir=", "--statedir=", "unknown flag --statedir"),
        (
            NODE,
            "--cache-dir=/var/jfsCache",
            "--cache-dir=/cache",
            "--cache-dir=/cache is not a mount",
        ),
        (NODE, "PeriodSeconds: 150", "PeriodSeconds: 100", "does not leave time to drain"),
        (NODE, "name: health\n", "name: web\n", "a probe asks at port health"),
        (
            NODE,
            "serviceAccountName: jfs-csi-node",
            "serviceAccountName: jfs",
            "names ServiceAccount kube-system/jfs",
        ),
        (
            NODE,
            "path: /var/lib/kubelet/plugins/csi.juicefs.com",
            "path: /var/lib/kubelet/plugins/juicefs",
            "kubelet is told",
        ),
        (
            NODE,
            "mountPath: /var/lib/jfs-csi\n              mountPropagation: Bidirectional",
            "mountPath: /var/lib/jfs-csi",
            "/var/lib/jfs-csi must be mounted there, with Bidirectional",
        ),
        (
            NODE,
            "value: csi.juicefs.com",
            "value: csi.example.com",
            "names CSIDriver /csi.example.com",
        ),
        (
            NODE,
            "prometheus.io/port: \"9567\"",
            "prometheus.io/port: \"9568\"",
            "Prometheus is sent to port 9568",
        ),
        (
            NODE,
            "path: /readyz\n              port: health",
            "path: /readyz\n              port: http",
            "a probe asks port http",
        ),
        (DRIVER, "requiresRepublish: true", "requiresRepublish: false", "requiresRepublish"),
        (
            CONTROLLER,
            "--extra-create-metadata",
            "--extra-metadata",
            "unknown flag --extra-metadata",
        ),
        (
            CONTROLLER,
            "--csi-address=/csi/csi.sock",
            "--csi-address=/csi/c.sock",
            "is not the driver's",
        ),
        (
            CONTROLLER,
            "maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: jfs-csi",
            "maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: jfs",
            "selects no pods",
        ),
        (BASE, "newTag: v6.2.1", "newTag: latest", "has no version"),
        (
            NODE,
            "--kubelet-dir=/var/lib/kubelet",
            "--kubelet-dir=/var/lib",
            "published below /var/lib/kubelet, not below /var/lib",
        ),
        (CONTROLLER, "mountPath: /var/run/secrets", "mountPath: /run/secrets", "has no token"),
        (
            CONTROLLER,
            "      automountServiceAccountToken: false\n      priority",
            "      priority",
            "every container gets the token",
        ),
        (NETWORK, "port: http", "port: web", "lets in to port web"),
        (
            RBAC,
            "resources: [secrets]\n    verbs: [get]",
            "resources: [secrets]\n    verbs: [get, list]",
            "only be read by name",
        ),
        (RBAC, "verbs: [get, create, update]", "verbs: ['*']", "a rule says *"),
        (
            RBAC,
            "kind: Role\n  name: jfs-csi-leader",
            "kind: Role\n  name: jfs-csi-elector",
            "names Role kube-system/jfs-csi-elector",
        ),
    ]);
}

#[test]
fn a_keeper_with_more_than_it_needs_is_found() {
    all_found(&[
        (KEEPER, "--socket=", "--sockt=", "unknown flag --sockt"),
        (
            KEEPER,
            "keeper.sock",
            "other.sock",
            "no keeper listens at --keeper=/run/jfs-csi/keeper.sock",
        ),
        (NODE, "mountPath: /run/jfs-csi", "mountPath: /run", "no keeper listens at --keeper="),
        (KEEPER, "--socket=/run/jfs-csi/", "--socket=/run/", "is not in a directory of the host"),
        (KEEPER, "type: OnDelete", "type: RollingUpdate", "replaced together with the driver"),
        (KEEPER, "drop: [ALL]", "drop: [NET_RAW]", "needs no capabilities"),
        (KEEPER, "drop: [ALL]", "drop: [ALL]\n              add: [SYS_ADMIN]", "no capabilities"),
        (
            KEEPER,
            "      terminationGrace",
            "      hostPID: true\n      terminationGrace",
            "of the host",
        ),
        (KEEPER, "/usr/bin/jfs-keeper", "/usr/bin/jfs-csi", "does not run jfs-keeper"),
        (
            KEEPER,
            "      automountServiceAccountToken: false\n      priority",
            "      priority",
            "needs no token",
        ),
    ]);
}

#[test]
fn examples_that_refer_to_missing_objects_are_found() {
    all_found(&[
        (
            "examples/storageclass.yaml",
            "provisioner: csi.juicefs.com",
            "provisioner: csi.juicefs.org",
            "names CSIDriver /csi.juicefs.org",
        ),
        (
            "examples/storageclass.yaml",
            "node-publish-secret-name: juicefs-secret",
            "node-publish-secret-name: juicefs",
            "names Secret kube-system/juicefs",
        ),
        (
            "examples/storageclass-path-pattern.yaml",
            "pathPattern",
            "pathpattern",
            "unknown attribute pathpattern",
        ),
        (
            "examples/storageclass-mount-options.yaml",
            "- writeback",
            "- write-back",
            "unknown mount option write-back",
        ),
        (
            "examples/ephemeral.yaml",
            "mountOptions: cache-size=2G",
            "mountOptions: cache_size=2G",
            "unknown mount option cache_size",
        ),
        ("examples/secret.yaml", "  metaurl:", "  meta-url:", "has no metaurl"),
        ("examples/secret.yaml", "  access-key:", "  acces-key:", "unknown key acces-key"),
        (
            "examples/dynamic.yaml",
            "claimName: shared",
            "claimName: share",
            "names PersistentVolumeClaim default/share",
        ),
        (
            "examples/dynamic.yaml",
            "storageClassName: juicefs",
            "storageClassName: jfs",
            "names StorageClass /jfs",
        ),
        (
            "examples/storageclass.yaml",
            "allowVolumeExpansion: true",
            "allowVolumeExpansion: false",
            "its class does not allow it",
        ),
        ("examples/expand.yaml", "storage: 20Gi", "storage: 2Gi", "is there twice"),
        (
            "examples/static.yaml",
            "volumeName: alpha",
            "volumeName: beta",
            "names PersistentVolume /beta",
        ),
        (
            "examples/read-only.yaml",
            "accessModes: [ReadOnlyMany]\n  storageClassName",
            "accessModes: [ReadWriteMany]\n  storageClassName",
            "which its volume does not allow",
        ),
        (
            "examples/snapshot.yaml",
            "persistentVolumeClaimName: shared",
            "persistentVolumeClaimName: gone",
            "names PersistentVolumeClaim default/gone",
        ),
        (
            "examples/snapshot.yaml",
            "storage: 20Gi",
            "storage: 1Gi",
            "is smaller than what it is made from",
        ),
        (
            "examples/clone.yaml",
            "kind: PersistentVolumeClaim\n    name: shared",
            "kind: PersistentVolumeClaim\n    name: lost",
            "names PersistentVolumeClaim default/lost",
        ),
        (
            "examples/ephemeral.yaml",
            "nodePublishSecretRef:\n          name: juicefs-inline",
            "nodePublishSecretRef:\n          name: juicefs-secret",
            "names Secret default/juicefs-secret",
        ),
        (
            "examples/attributes-class.yaml",
            "volumeAttributesClassName: juicefs-slow",
            "volumeAttributesClassName: slow",
            "names VolumeAttributesClass /slow",
        ),
        ("examples/backend.yaml", "targetPort: s3", "targetPort: http", "leads to port http"),
    ]);
}

#[track_caller]
fn all_found(breaks: &[Break]) {
    let folder = tempfile::tempdir().unwrap();
    let deploy = repository().join("deploy");
    let copied = Command::new("cp").arg("-r").arg(&deploy).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    let checker = Checker::within(folder.path());
    checker.passes(&[SNAPSHOTS, EXAMPLES]);
    for &(file, from, to, expected) in breaks {
        let sound = fs::read_to_string(deploy.join(file)).unwrap();
        assert!(sound.contains(from), "{file} has no {from:?}");
        let place = folder.path().join("deploy").join(file);
        fs::write(&place, sound.replacen(from, to, 1)).unwrap();
        found(&checker, file, to, expected);
        fs::write(&place, sound).unwrap();
    }
}

#[track_caller]
fn found(checker: &Checker, file: &str, broken: &str, expected: &str) {
    let findings = checker.check(&[SNAPSHOTS, EXAMPLES]);
    assert!(
        findings.iter().any(|finding| finding.contains(expected)),
        "{}: {broken:?} was not found as {expected:?}, but: {findings:#?}",
        Path::new(file).display()
    );
}
