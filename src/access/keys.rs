//! The keys of a Secret: which exist, and which are refused.

use std::collections::BTreeMap;

use super::{Pairs, text_map};
use crate::error::{Error, Result};
use crate::options::comma_list;
use crate::secret::Secret;

/// The `format` options of plain keys.
const FORMAT_KEYS: &[(&str, &str)] = &[
    ("storage", "storage"),
    ("bucket", "bucket"),
    ("access-key", "access-key"),
    ("accesskey", "access-key"),
    ("secret-key", "secret-key"),
    ("secretkey", "secret-key"),
    ("session-token", "session-token"),
    ("block-size", "block-size"),
    ("compress", "compress"),
    ("trash-days", "trash-days"),
    ("capacity", "capacity"),
    ("inodes", "inodes"),
    ("shards", "shards"),
];

/// Keys of the enterprise edition.
const ENTERPRISE_KEYS: &[&str] = &[
    "token",
    "passphrase",
    "initconfig",
    "access-key2",
    "secret-key2",
    "bucket2",
    "accesskey2",
    "secretkey2",
    "console-url",
];

/// The values of a Secret.
pub struct SecretKeys {
    pub name: String,
    pub metaurl: Secret,
    pub encrypt_key: Option<Secret>,
    pub envs: Pairs,
    /// Directories, by the name of the Secret that is mounted there.
    pub configs: BTreeMap<String, String>,
    /// Whether `format-options` has `no-update`: an existing file system is left unchanged.
    pub keeps_stored: bool,
    format_keys: Vec<(&'static str, Secret)>,
    format_list: Secret,
}

impl SecretKeys {
    pub fn read<'a>(secret: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<Self> {
        let (mut name, mut metaurl) = (String::new(), Secret::default());
        let (mut format_list, mut encrypt_key) = (Secret::default(), None);
        let (mut envs, mut configs) = (Pairs::new(), BTreeMap::new());
        let mut format_keys = Vec::new();
        for (key, value) in secret {
            let value = if key == "encrypt_rsa_key" { value } else { value.trim() };
            if value.is_empty() {
                continue;
            }
            match key.as_str() {
                "name" => value.clone_into(&mut name),
                "metaurl" => metaurl = Secret::new(value),
                "format-options" => format_list = Secret::new(value),
                "encrypt_rsa_key" => encrypt_key = Some(private_key(value)?),
                "envs" => envs = text_map::read("envs", value)?,
                "configs" => {
                    let read = text_map::read("configs", value)?;
                    configs.extend(read.into_iter().map(|(k, v)| (k, v.expose().to_owned())));
                }
                key if ENTERPRISE_KEYS.contains(&key) => return Err(enterprise(key)),
                key => match FORMAT_KEYS.iter().find(|(known, _)| *known == key) {
                    Some((_, option)) => format_keys.push((*option, Secret::new(value))),
                    None => {
                        return Err(Error::bad_input(format!(
                            "the Secret has an unknown key {key:?}"
                        )));
                    }
                },
            }
        }
        if name.is_empty() {
            return Err(Error::bad_input(
                "the Secret has no key \"name\": the name of the file system",
            ));
        }
        if metaurl.is_empty() {
            return Err(Error::bad_input(
                "the Secret has no key \"metaurl\": the address of the metadata",
            ));
        }
        let keeps_stored =
            comma_list::pairs(format_list.expose()).any(|pair| pair == ("no-update", None));
        Ok(Self {
            name,
            metaurl,
            encrypt_key,
            envs,
            configs,
            keeps_stored,
            format_keys,
            format_list,
        })
    }

    /// Returns the options of `format`. Those of `format-options` override plain keys.
    pub fn format_options(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let format_keys =
            self.format_keys.iter().map(|(name, value)| (*name, Some(value.expose())));
        format_keys.chain(
            comma_list::pairs(self.format_list.expose())
                .filter(|pair| *pair != ("no-update", None)),
        )
    }
}

fn private_key(text: &str) -> Result<Secret> {
    if !text.contains("PRIVATE KEY-----") {
        return Err(Error::bad_input(
            "secret key encrypt_rsa_key: not a private key in PEM format",
        ));
    }
    Ok(Secret::new(text))
}

fn enterprise(key: &str) -> Error {
    Error::bad_input(format!(
        "the Secret has the key {key:?} of the enterprise edition: only file systems with community \
         metadata (metaurl) are supported"
    ))
}
