//! The environment of one file system: what other clients take from that of their process.

use super::Pairs;
use crate::error::Result;
use crate::options::storage::StorageOptions;
use crate::secret::Secret;
use crate::volume::storage::{Overrides, flag};

/// For the metadata.
const META: &[&str] =
    &["META_PASSWORD", "REDIS_PASSWORD", "SENTINEL_PASSWORD", "META_PASSWORD_FILE"];

/// For the objects: keys and regions, as the kinds of store know them, and the way there.
const OBJECTS: &[&str] = &[
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
    pub fn read(pairs: &Pairs) -> Result<Self> {
        let mut env = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "JFS_RSA_PASSPHRASE" => env.passphrase = value.clone(),
                "JFS_FILE_SYNC" => env.sync = flag(name, value.expose())?,
                "JFS_INSTANCE_CREDENTIALS" => {
                    env.instance_credentials = flag(name, value.expose())?.unwrap_or(false);
                }
                known if META.contains(&known) => {
                    env.meta.insert(name.clone(), value.clone());
                }
                known if OBJECTS.contains(&known) => {
                    env.objects.insert(name.clone(), value.clone());
                }
                _ => env.unused.push(name.clone()),
            }
        }
        Ok(env)
    }

    /// What the metadata engine asks for.
    pub fn meta(&self, name: &str) -> Option<String> {
        self.meta.get(name).map(|value| value.expose().to_owned())
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

    /// Keys that a new volume takes from the environment if nothing else names them.
    pub fn complete(&self, storage: &mut StorageOptions) {
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

    pub fn unused(&self) -> &[String] {
        &self.unused
    }
}
