//! The attributes of a volume, as a PV or an inline volume has them.

use std::collections::HashMap;

use super::quantity;
use crate::error::{Error, Result};

/// Attributes that configure a mount pod.
const MOUNT_POD_ATTRIBUTES: &[&str] = &[
    "juicefs/host-path",
    "juicefs/mount-annotations",
    "juicefs/mount-cache-emptydir",
    "juicefs/mount-cache-inline-volume",
    "juicefs/mount-cache-pvc",
    "juicefs/mount-cpu-limit",
    "juicefs/mount-cpu-request",
    "juicefs/mount-delete-delay",
    "juicefs/mount-image",
    "juicefs/mount-labels",
    "juicefs/mount-memory-request",
    "juicefs/mount-service-account",
];
/// Prefixes of attributes that are not only for this driver.
const FOREIGN_PREFIXES: &[&str] =
    &["csi.storage.k8s.io/", "storage.kubernetes.io/", "volume.kubernetes.io/"];

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The directory in the file system, below `subdir`.
    pub path: Option<String>,
    /// The directory above `path`, unless the mount options name one.
    pub subdir: Option<String>,
    pub mount_options: String,
    /// Bytes.
    pub capacity: Option<u64>,
    /// Bytes of memory for data.
    pub memory: Option<u64>,
    pub ephemeral: bool,
    /// Attributes without effect, and why.
    pub unused: Vec<String>,
    /// Labels of the volume's metrics.
    pub labels: Vec<(String, String)>,
}

impl Attributes {
    /// Refuses unknown attributes and invalid values by name.
    pub fn read(context: &HashMap<String, String>) -> Result<Self> {
        let mut attributes = Self::default();
        // Sorted, so that messages have a fixed order.
        let mut keys: Vec<&String> = context.keys().collect();
        keys.sort();
        for key in keys {
            attributes.set(key, &context[key])?;
        }
        Ok(attributes)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "subPath" => self.path = Some(value.to_owned()),
            "subdir" => self.subdir = Some(value.to_owned()),
            "mountOptions" => value.clone_into(&mut self.mount_options),
            "capacity" | "size" => self.capacity = Some(bytes(key, value)?),
            "juicefs/mount-memory-limit" => self.memory = Some(bytes(key, value)?),
            "juicefs/clean-cache" => self
                .unused
                .push(format!("{key}: all volumes share one cache, which keeps to its size")),
            // juicefs-csi-driver marks PVs with it whose quota its controller has set.
            "juicefs/controller-quota-set" => self
                .unused
                .push(format!("{key}: the node sets a quota only where the volume has none")),
            // Parameters of the class, which only the controller of juicefs-csi-driver uses.
            "pathPattern" | "secretFinalizer" => {}
            "csi.storage.k8s.io/ephemeral" => self.ephemeral = value == "true",
            "csi.storage.k8s.io/pod.name" => self.label("pod", value),
            "csi.storage.k8s.io/pod.namespace" => self.label("namespace", value),
            "csi.storage.k8s.io/pvc/name" => self.label("pvc", value),
            key if MOUNT_POD_ATTRIBUTES.contains(&key) => {
                self.unused.push(format!("{key}: there is no mount pod"));
            }
            key if FOREIGN_PREFIXES.iter().any(|domain| key.starts_with(domain)) => {}
            key => return Err(Error::bad_input(format!("unknown volume attribute {key:?}"))),
        }
        Ok(())
    }

    fn label(&mut self, name: &str, value: &str) {
        self.labels.push((name.to_owned(), value.to_owned()));
    }
}

fn bytes(key: &str, value: &str) -> Result<u64> {
    quantity::parse(value)
        .ok_or_else(|| Error::bad_input(format!("volume attribute {key}: {value:?} is not a size")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Attributes> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Attributes::read(&pairs.collect())
    }

    #[test]
    fn attributes_of_juicefs_csi_driver_are_known() {
        let found = read(&[
            ("subPath", "pvc-1"),
            ("mountOptions", "cache-size=1G"),
            ("capacity", "10737418240"),
            ("juicefs/mount-memory-limit", "2Gi"),
            ("juicefs/mount-cpu-limit", "5"),
            ("juicefs/controller-quota-set", "true"),
            ("csi.storage.k8s.io/pod.name", "web-0"),
            ("storage.kubernetes.io/csiProvisionerIdentity", "x"),
        ])
        .unwrap();
        assert_eq!(found.path.as_deref(), Some("pvc-1"));
        assert_eq!((found.capacity, found.memory), (Some(10 << 30), Some(2 << 30)));
        assert_eq!(
            found.unused,
            [
                "juicefs/controller-quota-set: the node sets a quota only where the volume has none",
                "juicefs/mount-cpu-limit: there is no mount pod"
            ]
        );
        assert_eq!(found.labels, [("pod".to_owned(), "web-0".to_owned())]);
        assert!(!found.ephemeral);
    }

    #[test]
    fn unknown_attributes_and_invalid_values_are_refused_by_name() {
        for (key, value) in [("juicefs/mount-colour", "red"), ("capacity", "much")] {
            let error = read(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}
