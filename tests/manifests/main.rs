//! The manifests under `deploy/`, checked as by an API server and beyond.
//!
//! `tests/manifest-check` renders kustomize, the chart and the examples, validates every object
//! with the API server's own code, and looks for mistakes that only a cluster would show. The tests
//! here choose what to render, and check that the checker finds mistakes.
#![cfg(test)]

mod broken;
mod checker;

use checker::Checker;

const CHART: &str = "helm:deploy/helm/jfs-csi";
const EVERYTHING: &str = "helm:deploy/helm/jfs-csi?values=tests/manifests/everything.yaml";
const BASE: &str = "kustomize:deploy/kubernetes";
const SNAPSHOTS: &str = "kustomize:deploy/kubernetes/overlays/snapshots";
const REGISTRAR: &str = "kustomize:deploy/kubernetes/overlays/registrar";
const BOTH: &str = "kustomize:deploy/kubernetes/overlays/registrar-snapshots";
const EXAMPLES: &str = "files:deploy/examples";

#[test]
fn the_base_is_valid() {
    Checker::here().passes(&[BASE]);
}

#[test]
fn the_overlays_and_the_examples_are_valid() {
    // Together: the examples need snapshots, whose class names the Secret of the examples.
    Checker::here().passes(&[SNAPSHOTS, EXAMPLES]);
    Checker::here().passes(&[REGISTRAR]);
    Checker::here().passes(&[BOTH, EXAMPLES]);
}

#[test]
fn only_the_attributes_class_example_needs_a_new_provisioner() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/examples");
    let needs = |text: &str| text.contains("  csi.storage.k8s.io/controller-modify-secret-");
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if needs(&std::fs::read_to_string(&path).unwrap()) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    assert_eq!(found, ["attributes-class.yaml"]);
}

#[test]
fn the_chart_is_valid_by_default_and_with_everything_enabled() {
    Checker::here().passes(&[CHART]);
    Checker::here().passes(&[EVERYTHING]);
    Checker::here().passes(&[&format!("{CHART}?set=node.hostNetwork=true")]);
    Checker::here().passes(&[&format!("{CHART}?set=controller.allSecrets=true")]);
    Checker::here().passes(&[&format!("{CHART}?set=keeper.enabled=false")]);
}

#[test]
fn the_chart_creates_the_objects_of_kustomize() {
    let checker = Checker::here();
    checker.agrees(CHART, BASE);
    checker.agrees(&format!("{CHART}?set=snapshots.enabled=true"), SNAPSHOTS);
    checker.agrees(&format!("{CHART}?set=node.registrar.enabled=true"), REGISTRAR);
    checker.agrees(
        &format!("{CHART}?set=node.registrar.enabled=true&set=snapshots.enabled=true"),
        BOTH,
    );
    assert!(
        !checker.run(&["same", EVERYTHING, BASE]).findings.is_empty(),
        "the comparison finds nothing between different objects"
    );
}

#[test]
fn the_chart_refuses_unknown_values() {
    for set in [
        "node.bogus=1",
        "driver_name=x",
        "node.updateStrategy.type=Sometimes",
        "kubeletDir=/var/lib/kubelet/",
        "node.memoryBudget=much",
        "controller.replicas=0",
        "keeper.dir=relative",
        "keeper.orphanTimeoutSeconds=-1",
        "allow.everything=true",
        "allow.localStorage=relative",
        "allow.inlineProfile=anybody",
        "allow.mountOptions={storage}",
        "node.cacheOptions={writeback}",
        "secrets[0].name=x",
        "storageClasses[0].name=x",
    ] {
        let refused = Checker::here().run(&["render", &format!("{CHART}?set={set}")]);
        assert!(refused.stderr.contains("schema"), "{set}: {}", refused.stderr);
    }
}

#[test]
fn a_new_pod_starts_beside_the_old_one_if_keeper_ports_and_registrar_allow_it() {
    let node = |set: &str| {
        let rendered = Checker::here().run(&["render", &format!("{CHART}?set={set}")]).stdout;
        let mut documents = rendered.split("\n---\n").map(str::to_owned);
        documents.find(|it| it.contains("kind: DaemonSet") && it.contains("--mode=node")).unwrap()
    };
    let surge = node("keeper.enabled=true");
    assert!(surge.contains("maxSurge: 1") && surge.contains("--keeper=/run/jfs-csi/keeper.sock"));
    let host = node("node.hostNetwork=true");
    assert!(host.contains("maxUnavailable: 1") && !host.contains("maxSurge"));
    // At its end, the registrar of the old pod would remove the socket of the new one.
    let registrar = node("node.registrar.enabled=true");
    assert!(registrar.contains("maxUnavailable: 1") && !registrar.contains("maxSurge"));
    let alone = node("keeper.enabled=false");
    assert!(alone.contains("type: OnDelete") && !alone.contains("--keeper"));
    let chosen = node("node.updateStrategy.type=OnDelete");
    assert!(chosen.contains("type: OnDelete") && chosen.contains("--keeper"));
}

#[test]
fn by_default_nothing_is_allowed_and_there_are_no_inline_volumes() {
    let checker = Checker::here();
    for source in [CHART, BASE, SNAPSHOTS, REGISTRAR] {
        let rendered = checker.run(&["render", source]).stdout;
        assert!(rendered.contains("kind: CSIDriver"), "{source}");
        assert!(!rendered.contains("--allow-"), "{source}");
        assert!(!rendered.contains("- Ephemeral"), "{source}");
    }
    let rendered = checker.run(&["render", EVERYTHING]).stdout;
    for word in [
        "--allow-local-storage=/srv/local",
        "--allow-files-below=/etc/jfs-csi/files",
        "--allow-instance-credentials",
        "--allow-link-local",
        "--allow-loopback",
        "--allow-inline-volumes",
        "--allow-mount-options=suid,cache-dir",
        "--allow-inline-options=subPath,writeback",
    ] {
        assert_eq!(rendered.matches(word).count(), 2, "{word}: on nodes and in the controller");
    }
    assert!(rendered.contains("--cache-options=cache-size=200G,free-space-ratio=0.2"));
    assert!(rendered.contains("- Ephemeral"));
    assert!(rendered.contains("csi-ephemeral-volume-profile: baseline"));
}

#[test]
fn the_chart_shows_secrets_nowhere() {
    let rendered = Checker::here().run(&["render", EVERYTHING]).stdout;
    assert!(rendered.contains("NOTES.txt") && rendered.contains("kind: Secret"));
    assert!(!rendered.contains("hunter2"), "a secret of the values is readable");
    for document in rendered.split("\n---\n").filter(|it| !it.contains("\nkind: Secret")) {
        for hidden in ["hunter2-redis", "hunter2-access", "hunter2-secret"] {
            let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, hidden);
            assert!(!document.contains(&encoded), "{hidden} in {document}");
        }
    }
}
