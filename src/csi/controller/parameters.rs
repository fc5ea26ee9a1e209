//! Parameters of a `StorageClass` and of a `VolumeAttributesClass`.

use std::collections::{BTreeMap, HashMap};

use tonic::Status;

use crate::options::sizes::{parse_mbps, parse_mebibytes};

/// Parameters of a `StorageClass`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub pattern: Option<String>,
    pub subdir: Option<String>,
    pub mount_options: Option<String>,
    pub mode: Option<u16>,
    pub owner: Option<Owner>,
    /// Whether a volume may use a directory of another namespace.
    pub may_share: bool,
    /// Attributes that nodes get unchanged.
    pub context: BTreeMap<String, String>,
}

/// The owner of a volume's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Names the claim of a volume. Nodes get them for the labels of metrics.
const CLAIM_METADATA: &[&str] = &[
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
    "csi.storage.k8s.io/pv/name",
];

impl Parameters {
    /// Refuses unknown parameters and invalid values by name.
    pub fn read(given: &HashMap<String, String>) -> Result<Self, Status> {
        let mut parameters = Self::default();
        for (key, value) in given {
            let fail = |what: &str| {
                Status::invalid_argument(format!("parameter {key}: {value:?} is not {what}"))
            };
            match key.as_str() {
                "pathPattern" => parameters.pattern = Some(value.clone()),
                "subdir" => parameters.subdir = Some(value.clone()),
                "mountOptions" => {
                    parameters.mount_options = Some(value.clone());
                    parameters.context.insert(key.clone(), value.clone());
                }
                "mode" => {
                    let mode = u16::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
                    parameters.mode = Some(mode.ok_or_else(|| fail("an octal mode such as 0770"))?);
                }
                "owner" => {
                    let (uid, gid) = value.split_once(':').ok_or_else(|| fail("uid:gid"))?;
                    let number = |text: &str| text.parse().map_err(|_| fail("uid:gid in numbers"));
                    parameters.owner = Some(Owner { uid: number(uid)?, gid: number(gid)? });
                }
                "shareAcrossNamespaces" => {
                    parameters.may_share =
                        value.parse().map_err(|_| fail("one of true and false"))?;
                }
                // A parameter of juicefs-csi-driver. No finalizer is needed on a Secret here.
                "secretFinalizer" => {}
                key if key.starts_with("juicefs/") || CLAIM_METADATA.contains(&key) => {
                    parameters.context.insert(key.to_owned(), value.clone());
                }
                // For the provisioner, which removes most of them.
                key if key.starts_with("csi.storage.k8s.io/") => {}
                key => return Err(Status::invalid_argument(format!("unknown parameter {key:?}"))),
            }
        }
        Ok(parameters)
    }
}

/// Parameters of a `VolumeAttributesClass`, which may change while a volume is in use.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MutableParameters {
    /// All of them, as the volume's record keeps them for the nodes.
    pub recorded: BTreeMap<String, String>,
    /// Maximum number of inodes of the volume; 0 removes the limit.
    pub inodes: Option<i64>,
}

impl MutableParameters {
    /// Refuses unknown parameters and invalid values by name.
    pub fn read(given: &HashMap<String, String>) -> Result<Self, Status> {
        let mut mutable = Self::default();
        for (key, value) in given {
            let fail =
                |what: String| Status::invalid_argument(format!("mutable parameter {key}: {what}"));
            match key.as_str() {
                "upload-limit" | "download-limit" => {
                    parse_mbps(value).map_err(|error| fail(format!("{error:#}")))?;
                }
                "cache-share" => {
                    parse_mebibytes(value).map_err(|error| fail(format!("{error:#}")))?;
                }
                "inodes" => {
                    let inodes = value.parse::<i64>().ok().filter(|inodes| *inodes >= 0);
                    let inodes = inodes.ok_or_else(|| fail(format!("{value:?} is not a count")))?;
                    mutable.inodes = Some(inodes);
                }
                _ => return Err(fail("unknown".to_owned())),
            }
            mutable.recorded.insert(key.clone(), value.clone());
        }
        Ok(mutable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn unknown_parameters_and_invalid_values_are_refused_by_name() {
        for (key, value) in [
            ("colour", "red"),
            ("mode", "999"),
            ("owner", "me"),
            ("owner", "a:b"),
            ("shareAcrossNamespaces", "perhaps"),
        ] {
            let error = Parameters::read(&map(&[(key, value)])).unwrap_err();
            assert!(error.message().contains(key), "{}", error.message());
        }
        for (key, value) in [("colour", "red"), ("upload-limit", "much"), ("inodes", "-1")] {
            let error = MutableParameters::read(&map(&[(key, value)])).unwrap_err();
            assert!(error.message().contains(key), "{}", error.message());
        }
    }

    #[test]
    fn nodes_get_their_attributes_and_nothing_else() {
        let read = Parameters::read(&map(&[
            ("juicefs/clean-cache", "true"),
            ("mountOptions", "writeback"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/fstype", "juicefs"),
            ("secretFinalizer", "true"),
            ("mode", "0750"),
            ("owner", "1000:1001"),
        ]))
        .unwrap();
        let keys: Vec<&str> = read.context.keys().map(String::as_str).collect();
        assert_eq!(keys, ["csi.storage.k8s.io/pvc/name", "juicefs/clean-cache", "mountOptions"]);
        let owner = Owner { uid: 1000, gid: 1001 };
        assert_eq!((read.mode, read.owner), (Some(0o750), Some(owner)));
    }

    proptest::proptest! {
        #[test]
        fn every_parameter_is_read_or_refused_by_name(
            key in proptest::sample::select(vec![
                "pathPattern", "subdir", "mountOptions", "mode", "owner", "shareAcrossNamespaces",
                "upload-limit", "cache-share", "inodes", "colour",
            ]),
            value in "\\PC{0,40}",
        ) {
            let given = map(&[(key, &value)]);
            for error in [Parameters::read(&given).err(), MutableParameters::read(&given).err()] {
                proptest::prop_assert!(error.is_none_or(|error| error.message().contains(key)));
            }
        }
    }
}
