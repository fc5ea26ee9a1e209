//! Access: how a file system is reached, as a Secret of Kubernetes says it.
//!
//! Knows the keys of such a Secret and what becomes of them. What it says is of this file system
//! alone: nothing of it gets into the environment of the process, a log or an error.

mod connect;
mod env;
mod identity;
mod keys;
mod map;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::options::format::FormatArgs;
use crate::policy::Policy;
use crate::secret::Secret;
use crate::volume::storage::Overrides;
use env::Environment;
use keys::Keys;

/// How a file system is reached.
pub struct Access {
    name: String,
    /// Of the metadata, with its password if it has one.
    address: Secret,
    /// What the volume is made with, and its keys.
    format: FormatArgs,
    /// Whether what is stored of an existing volume stays as it is.
    keeps: bool,
    env: Environment,
    credential: String,
    /// What of this, and of what is stored, may be opened.
    policy: Arc<Policy>,
}

impl Access {
    /// Reads a Secret. A key that is not known, a value that makes no sense, and what the policy does
    /// not allow is refused by the name of its key.
    pub fn from_secret<'a>(
        secret: impl IntoIterator<Item = (&'a String, &'a String)>,
        policy: &Arc<Policy>,
    ) -> Result<Self> {
        Keys::read(secret)?.into_access(policy)
    }

    /// The name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells this file system from others: equal for equal ones, whatever the passwords are.
    /// Shows nothing of the address.
    pub fn id(&self) -> String {
        identity::of(self.address.expose(), &self.name)
    }

    /// What tells one right to use a file system from another: equal if users, passwords, keys and the
    /// way to the stores are. Shows nothing of them, and means nothing to another process.
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// Where the metadata is, without its password.
    pub fn place(&self) -> String {
        crate::meta::engine::masked(self.address.expose())
    }

    /// What the environment of this file system says about its objects.
    pub fn overrides(&self) -> Overrides {
        Overrides { policy: Arc::clone(&self.policy), ..self.env.overrides() }
    }

    /// Names of environment variables that the Secret has and nothing here looks at.
    pub fn unused(&self) -> &[String] {
        self.env.unused()
    }

    /// Whether the Secret says where objects are, so that the volume may be made, and its keys be
    /// kept up to date.
    fn names_storage(&self) -> bool {
        self.format.storage.storage.is_some() && self.format.storage.bucket.is_some()
    }
}

/// Names the volume and nothing that is secret.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Keys {
    fn into_access(self, policy: &Arc<Policy>) -> Result<Access> {
        let address = match self.metaurl.expose() {
            url if url.contains("://") => self.metaurl.clone(),
            url => Secret::new(format!("redis://{url}")),
        };
        policy.check_metadata(address.expose())?;
        let env = Environment::read(&self.envs, policy)?;
        for (secret, dir) in &self.configs {
            policy.check_file("secret key configs", Path::new(dir))?;
            if !Path::new(dir).is_dir() {
                return Err(Error::bad_input(format!(
                    "secret key configs: there is no directory {dir} here; mount Secret {secret} \
                     there into the pods of the driver, as there is no mount pod to do it"
                )));
            }
        }
        let mut format = FormatArgs::from_pairs(self.format_options())
            .map_err(|error| Error::bad_input(format!("secret key format-options: {error:#}")))?;
        format.encrypt_key = self.encrypt_key;
        for (option, path) in [
            ("encrypt-rsa-key", &format.encrypt_rsa_key),
            ("kerberos-config-file", &format.kerberos_config_file),
        ] {
            if let Some(path) = path {
                policy.check_file(&format!("secret key format-options: {option}"), path)?;
            }
        }
        if let Some(path) = format.encrypt_rsa_key.as_ref().filter(|path| !path.is_file()) {
            return Err(Error::bad_input(format!(
                "secret key format-options: there is no file {} here; give the key itself as \
                 encrypt_rsa_key",
                path.display()
            )));
        }
        env.complete(&mut format.storage);
        let storage = &format.storage;
        let keys = [
            &storage.storage,
            &storage.bucket,
            &storage.access_key,
            &storage.secret_key,
            &storage.session_token,
        ];
        let keys = keys.into_iter().flat_map(|key| ["key", key.as_deref().unwrap_or_default()]);
        let envs = self.envs.iter().flat_map(|(name, value)| [name.as_str(), value.expose()]);
        let fields = [self.metaurl.expose()].into_iter().chain(keys).chain(envs);
        let credential = identity::of_credentials(fields)?;
        let bucket = storage.bucket.as_deref().unwrap_or_default();
        policy.check_storage(storage.storage.as_deref().unwrap_or_default(), bucket)?;
        format.policy = Arc::clone(policy);
        let policy = Arc::clone(policy);
        Ok(Access { name: self.name, address, format, keeps: self.keeps, env, credential, policy })
    }
}

type Pairs = BTreeMap<String, Secret>;
