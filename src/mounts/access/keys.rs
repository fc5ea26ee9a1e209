//! The keys of a Secret: which there are, and which are refused and why.

use std::collections::BTreeMap;

use super::{Pairs, map};
use crate::error::{Error, Result};
use crate::options::comma_list;
use crate::secret::Secret;

/// What the plain keys are called among the options of `format`.
const PLAIN: &[(&str, &str)] = &[
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

/// Keys that only mean something to the hosted service.
const ENTERPRISE: &[&str] = &[
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

/// A Secret, taken apart.
pub struct Keys {
    pub name: String,
    pub metaurl: Secret,
    pub encrypt_key: Option<Secret>,
    pub envs: Pairs,
    /// Directories by the name of the Secret whose files they have.
    pub configs: BTreeMap<String, String>,
    /// Whether `format-options` says that an existing volume is to be left alone.
    pub keeps: bool,
    plain: Vec<(&'static str, Secret)>,
    options: Secret,
}

impl Keys {
    pub fn read<'a>(secret: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<Self> {
        let (mut name, mut metaurl) = (String::new(), Secret::default());
        let (mut options, mut encrypt_key) = (Secret::default(), None);
        let (mut envs, mut configs) = (Pairs::new(), BTreeMap::new());
        let mut plain = Vec::new();
        for (key, value) in secret {
            let value = if key == "encrypt_rsa_key" { value } else { value.trim() };
            if value.is_empty() {
                continue;
            }
            match key.as_str() {
                "name" => value.clone_into(&mut name),
                "metaurl" => metaurl = Secret::new(value),
                "format-options" => options = Secret::new(value),
                "encrypt_rsa_key" => encrypt_key = Some(private_key(value)?),
                "envs" => envs = map::read("envs", value)?,
                "configs" => {
                    let read = map::read("configs", value)?;
                    configs.extend(read.into_iter().map(|(k, v)| (k, v.expose().to_owned())));
                }
                key if ENTERPRISE.contains(&key) => return Err(enterprise(key)),
                key => match PLAIN.iter().find(|(known, _)| *known == key) {
                    Some((_, option)) => plain.push((*option, Secret::new(value))),
                    None => {
                        return Err(Error::bad_input(format!(
                            "the Secret has an unknown key {key:?}"
                        )));
                    }
                },
            }
        }
        if name.is_empty() {
            return Err(Error::bad_input("the Secret has no key \"name\": the name of the volume"));
        }
        if metaurl.is_empty() {
            return Err(Error::bad_input(
                "the Secret has no key \"metaurl\": the address of the metadata",
            ));
        }
        let keeps = comma_list::pairs(options.expose()).any(|pair| pair == ("no-update", None));
        Ok(Self { name, metaurl, encrypt_key, envs, configs, keeps, plain, options })
    }

    /// The options of `format`; those of the list win.
    pub fn format_options(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let plain = self.plain.iter().map(|(name, value)| (*name, Some(value.expose())));
        plain.chain(
            comma_list::pairs(self.options.expose()).filter(|pair| *pair != ("no-update", None)),
        )
    }
}

fn private_key(text: &str) -> Result<Secret> {
    if !text.contains("PRIVATE KEY-----") {
        return Err(Error::bad_input("secret key encrypt_rsa_key: not a private key in PEM form"));
    }
    Ok(Secret::new(text))
}

fn enterprise(key: &str) -> Error {
    Error::bad_input(format!(
        "the Secret has the key {key:?} of the enterprise edition: only volumes with metadata of \
         the community edition (metaurl) are served"
    ))
}
