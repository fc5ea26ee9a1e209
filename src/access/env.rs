//! The environment of one file system: variables that other clients take from their process.

use std::path::Path;

use super::Pairs;
use crate::error::{Error, Result};
use crate::options::storage::StorageOptions;
use crate::policy::Policy;
use crate::secret::Secret;
use crate::volume::storage::{Overrides, flag};

/// Variables for the metadata.
const META_VARIABLES: &[&str] = &[PASSWORD, "REDIS_PASSWORD", "SENTINEL_PASSWORD", PASSWORD_FILE];
const PASSWORD: &str = "META_PASSWORD";
const PASSWORD_FILE: &str = "META_PASSWORD_FILE";
/// Whether the machine's identity may replace missing keys.
const INSTANCE_CREDENTIALS: &str = "JFS_INSTANCE_CREDENTIALS";

/// Variables for the object store: keys, regions and proxies.
const OBJECT_VARIABLES: &[&str] = &[
    "ACCESS_KEY",
    "ALICLOUD_ACCESS_KEY_ID",
    "ALICLOUD_ACCESS_KEY_SECRET",
    "ALICLOUD_REGION_ID",
    "AWS_ACCESS_KEY_ID",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "COS_SECRETID",
    "COS_SECRETKEY",
    "EOS_ACCESS_KEY",
    "EOS_SECRET_KEY",
    "EOS_TOKEN",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "HWCLOUD_ACCESS_KEY",
    "HWCLOUD_SECRET_KEY",
    "HWCLOUD_SECURITY_TOKEN",
    "JFS_S3_VHOST_STYLE",
    "MINIO_ACCESS_KEY",
    "MINIO_REGION",
    "MINIO_SECRET_KEY",
    "NO_PROXY",
    "SCW_ACCESS_KEY",
    "SCW_SECRET_KEY",
    "SECRET_KEY",
    "SECURITY_TOKEN",
    "SESSION_TOKEN",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Those of the object store that name a proxy.
const PROXY_VARIABLES: &[&str] = &["HTTPS_PROXY", "HTTP_PROXY", "http_proxy", "https_proxy"];

#[derive(Default)]
pub struct Environment {
    meta: Pairs,
    objects: Pairs,
    passphrase: Secret,
    sync: Option<bool>,
    instance_credentials: bool,
    unused: Vec<String>,
}

impl Environment {
    pub fn read(pairs: &Pairs, policy: &Policy) -> Result<Self> {
        let mut env = Self::default();
        for (name, value) in pairs {
            policy.check_variable(name, value.expose())?;
            match name.as_str() {
                "JFS_RSA_PASSPHRASE" => env.passphrase = value.clone(),
                "JFS_FILE_SYNC" => env.sync = parse_bool(name, value)?,
                INSTANCE_CREDENTIALS => {
                    env.instance_credentials = parse_bool(name, value)?.unwrap_or(false);
                    if env.instance_credentials {
                        policy.check_instance_credentials(&format!("envs: {name}"))?;
                    }
                }
                known if META_VARIABLES.contains(&known) => {
                    env.meta.insert(name.clone(), value.clone());
                }
                known if OBJECT_VARIABLES.contains(&known) => {
                    env.objects.insert(name.clone(), value.clone());
                }
                _ => env.unused.push(name.clone()),
            }
        }
        Ok(env)
    }

    /// Returns a variable for the metadata engine. The password file is read here and passed as a
    /// password, so that nothing else opens it.
    pub fn meta(&self, name: &str, from_file: &Secret) -> Option<String> {
        let variable = |name: &str| self.meta.get(name).map(|value| value.expose().to_owned());
        match name {
            PASSWORD_FILE => None,
            PASSWORD => variable(name).or_else(|| Some(from_file.expose().to_owned())),
            _ => variable(name),
        }
        .filter(|value| !value.is_empty())
    }

    /// Reads the password file, if one is named.
    pub fn password(&self, policy: &Policy) -> Result<Secret> {
        let Some(file) = self.meta.get(PASSWORD_FILE) else { return Ok(Secret::default()) };
        let what = format!("envs: {PASSWORD_FILE}");
        let text = policy.read_text(&what, Path::new(file.expose()))?;
        Ok(Secret::new(text.trim()))
    }

    pub fn overrides(&self) -> Overrides {
        Overrides {
            passphrase: self.passphrase.clone(),
            instance_credentials: self.instance_credentials,
            sync: self.sync,
            env: self.objects.clone(),
            ..Overrides::default()
        }
    }

    /// Fills in keys that no other option names, for a new file system.
    pub fn fill_in(&self, storage: &mut StorageOptions) {
        for (key, name) in [
            (&mut storage.access_key, "ACCESS_KEY"),
            (&mut storage.secret_key, "SECRET_KEY"),
            (&mut storage.session_token, "SESSION_TOKEN"),
        ] {
            if key.is_none() {
                *key = self.objects.get(name).map(|value| value.expose().to_owned());
            }
        }
    }

    /// Returns the name of the variable that sets a proxy for the object store, if there is one.
    pub fn proxy(&self) -> Option<&'static str> {
        PROXY_VARIABLES.iter().find(|name| self.objects.contains_key(**name)).copied()
    }

    pub fn unused_variables(&self) -> &[String] {
        &self.unused
    }
}

/// Parses a boolean. The error does not repeat the value.
fn parse_bool(name: &str, value: &Secret) -> Result<Option<bool>> {
    flag(name, value.expose())
        .map_err(|_| Error::bad_input(format!("envs: {name} is neither true nor false")))
}
