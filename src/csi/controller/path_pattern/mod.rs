//! Path patterns: `${.pvc.namespace}-${.pvc.name}`.

mod kube_api;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::csi::records::NAMESPACE;
use crate::error::{Error, Result};

pub use kube_api::KubeApi;

const CLAIM_NAME: &str = "csi.storage.k8s.io/pvc/name";
/// The annotation in which the scheduler names the node of a claim.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Returns the path for a pattern. `parameters` has the claim's name and namespace; labels,
/// annotations and nodes come from the Kubernetes API. A missing value is an error: if it were left
/// out, volumes would share directories by accident.
pub async fn resolve(
    pattern: &str,
    parameters: &HashMap<String, String>,
    kube: Option<&KubeApi>,
) -> Result<String> {
    let fail = |what: String| Error::bad_input(format!("pathPattern {pattern:?}: {what}"));
    let mut sources = Sources { parameters, kube, claim: None, node: None };
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once("${") {
        path.push_str(before);
        let (name, after) = after.split_once('}').ok_or_else(|| fail("${ without }".to_owned()))?;
        if !known.contains_key(name) {
            let value = sources.value(name.trim()).await.map_err(|error| match error {
                Error::BadInput(what) => fail(what),
                other => other,
            })?;
            known.insert(name, value);
        }
        path.push_str(known.get(name).map_or("", String::as_str));
        rest = after;
    }
    path.push_str(rest);
    Ok(path)
}

/// The sources of values.
struct Sources<'a> {
    parameters: &'a HashMap<String, String>,
    kube: Option<&'a KubeApi>,
    claim: Option<Value>,
    node: Option<Value>,
}

impl Sources<'_> {
    async fn value(&mut self, name: &str) -> Result<String> {
        let found = match name {
            ".pvc.namespace" | ".PVC.namespace" => Some(self.parameter(NAMESPACE)?),
            ".pvc.name" | ".PVC.name" => Some(self.parameter(CLAIM_NAME)?),
            ".node.name" => Some(self.node_name().await?),
            _ => {
                if let Some(key) = name.strip_prefix(".pvc.labels.") {
                    entry(self.claim().await?, "labels", key)
                } else if let Some(key) = name.strip_prefix(".pvc.annotations.") {
                    entry(self.claim().await?, "annotations", key)
                } else if let Some(key) = name.strip_prefix(".node.labels.") {
                    entry(self.node().await?, "labels", key)
                } else {
                    return Err(Error::bad_input(format!("unknown variable ${{{name}}}")));
                }
            }
        };
        found
            .filter(|value| !value.is_empty())
            .ok_or_else(|| Error::bad_input(format!("${{{name}}} has no value")))
    }

    fn parameter(&self, key: &str) -> Result<String> {
        self.parameters.get(key).cloned().ok_or_else(|| {
            Error::bad_input(format!(
                "the provisioner does not send {key}: run it with --extra-create-metadata"
            ))
        })
    }

    fn kube(&self) -> Result<&KubeApi> {
        self.kube.ok_or_else(|| {
            Error::bad_input(
                "labels, annotations and nodes need access to the Kubernetes API: set \
                 controller.readsClaims of the chart",
            )
        })
    }

    async fn claim(&mut self) -> Result<&Value> {
        if self.claim.is_none() {
            let (namespace, name) = (self.parameter(NAMESPACE)?, self.parameter(CLAIM_NAME)?);
            self.claim = Some(self.kube()?.claim(&namespace, &name).await?);
        }
        self.claim.as_ref().ok_or(Error::NotFound)
    }

    async fn node_name(&mut self) -> Result<String> {
        entry(self.claim().await?, "annotations", SELECTED_NODE).ok_or_else(|| {
            Error::bad_input(
                "no node is selected for the claim: set volumeBindingMode: WaitForFirstConsumer in \
                 the StorageClass",
            )
        })
    }

    async fn node(&mut self) -> Result<&Value> {
        if self.node.is_none() {
            let name = self.node_name().await?;
            self.node = Some(self.kube()?.node(&name).await?);
        }
        self.node.as_ref().ok_or(Error::NotFound)
    }
}

fn entry(object: &Value, map: &str, key: &str) -> Option<String> {
    object.get("metadata")?.get(map)?.get(key)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> HashMap<String, String> {
        [(CLAIM_NAME, "data"), (NAMESPACE, "web")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[tokio::test]
    async fn names_and_namespaces_need_no_kubernetes_api() {
        for (pattern, path) in [
            ("${.pvc.namespace}-${.pvc.name}", "web-data"),
            ("a/${.PVC.namespace}/${.PVC.name}/b", "a/web/data/b"),
            ("plain", "plain"),
            ("${.pvc.name}${.pvc.name}", "datadata"),
        ] {
            assert_eq!(resolve(pattern, &parameters(), None).await.unwrap(), path);
        }
    }

    #[tokio::test]
    async fn an_unknown_value_is_an_error_that_names_it() {
        for (pattern, word) in [
            ("${.pvc.labels.team}", "Kubernetes API"),
            ("${.node.name}", "Kubernetes API"),
            ("${.colour}", ".colour"),
            ("${.pvc.name", "${"),
        ] {
            let error = resolve(pattern, &parameters(), None).await.unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("pathPattern"), "{error}");
        }
        let error = resolve("${.pvc.name}", &HashMap::new(), None).await.unwrap_err().to_string();
        assert!(error.contains("--extra-create-metadata"), "{error}");
    }
}
