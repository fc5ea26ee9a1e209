//! The manifests under `deploy/`, checked as an API server would and a little further.
//!
//! `tests/manifest-check` does the work: it renders kustomize, the chart and the examples, validates
//! every object with the API server's own code, and looks for what only a cluster would show. Here
//! stands what is rendered, and that the checker finds what is wrong.
#![cfg(test)]

mod broken;
mod checker;

use checker::Checker;

const CHART: &str = "helm:deploy/helm/jfs-csi";
const EVERYTHING: &str = "helm:deploy/helm/jfs-csi?values=tests/manifests/everything.yaml";
const BASE: &str = "kustomize:deploy/kubernetes";
const SNAPSHOTS: &str = "kustomize:deploy/kubernetes/overlays/snapshots";
const REGISTRAR: &str = "kustomize:deploy/kubernetes/overlays/registrar";
const EXAMPLES: &str = "files:deploy/examples";

#[test]
fn the_base_is_sound() {
    Checker::here().passes(&[BASE]);
}

#[test]
fn the_overlays_and_the_examples_are_sound() {
    // Together: the examples need snapshots, whose class names the Secret of the examples.
    Checker::here().passes(&[SNAPSHOTS, EXAMPLES]);
    Checker::here().passes(&[REGISTRAR]);
}

#[test]
fn the_chart_is_sound_as_it_comes_and_with_everything_switched_on() {
    Checker::here().passes(&[CHART]);
    Checker::here().passes(&[EVERYTHING]);
    Checker::here().passes(&[&format!("{CHART}?set=node.hostNetwork=true")]);
}

#[test]
fn the_chart_makes_the_objects_of_kustomize() {
    let checker = Checker::here();
    checker.agrees(CHART, BASE);
    checker.agrees(&format!("{CHART}?set=snapshots.enabled=true"), SNAPSHOTS);
    checker.agrees(&format!("{CHART}?set=node.registrar.enabled=true"), REGISTRAR);
    assert!(
        !checker.run(&["same", EVERYTHING, BASE]).findings.is_empty(),
        "the comparison finds nothing between different objects"
    );
}

#[test]
fn the_chart_refuses_values_that_it_does_not_know() {
    for set in [
        "node.bogus=1",
        "driver_name=x",
        "node.updateStrategy.type=Sometimes",
        "kubeletDir=/var/lib/kubelet/",
        "node.memoryBudget=much",
        "controller.replicas=0",
        "secrets[0].name=x",
        "storageClasses[0].name=x",
    ] {
        let refused = Checker::here().run(&["render", &format!("{CHART}?set={set}")]);
        assert!(refused.stderr.contains("schema"), "{set}: {}", refused.stderr);
    }
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
