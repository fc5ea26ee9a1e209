//! Access to a file system, as a Kubernetes Secret describes it: metadata address, object store,
//! keys.
//!
//! Owns the keys of such a Secret and their meaning. They apply to this file system alone: nothing
//! gets into the environment of the process, a log or an error.

mod connect;
mod digest;
mod env;
mod keys;
#[cfg(test)]
mod tests;
mod text_map;

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
use keys::SecretKeys;

/// How to reach a file system.
pub struct Access {
    name: String,
    /// Address of the metadata, with its password if it has one.
    address: Secret,
    /// The options to format the file system with, and its keys.
    format: FormatArgs,
    /// Whether the stored settings of an existing file system are left unchanged.
    keeps_stored: bool,
    env: Environment,
    credential: String,
    /// What the Secret and the stored settings may refer to.
    policy: Arc<Policy>,
}

impl Access {
    /// Reads a Secret. Refuses unknown keys, invalid values and what the policy forbids, by the
    /// name of the key.
    pub fn from_secret<'a>(
        secret: impl IntoIterator<Item = (&'a String, &'a String)>,
        policy: &Arc<Policy>,
    ) -> Result<Self> {
        SecretKeys::read(secret)?.into_access(policy)
    }

    /// Returns the name of the file system.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of the file system: the same for every spelling of its address, and for all
    /// passwords. Reveals nothing of the address.
    pub fn id(&self) -> String {
        digest::of_file_system(self.address.expose(), &self.name)
    }

    /// Returns a digest of users, passwords, keys and endpoints. It is equal for equal credentials,
    /// reveals nothing of them, and is valid only within this process.
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// Returns the address of the metadata, without its password.
    pub fn masked_address(&self) -> String {
        crate::meta::engine::masked(self.address.expose())
    }

    /// Returns the storage settings from the Secret's environment.
    pub fn overrides(&self) -> Overrides {
        Overrides { policy: Arc::clone(&self.policy), ..self.env.overrides() }
    }

    /// Returns the names of environment variables in the Secret that are not used.
    pub fn unused_variables(&self) -> &[String] {
        self.env.unused_variables()
    }

    /// Whether the Secret names an object store, so that the file system may be formatted and its
    /// keys be kept up to date.
    fn has_object_store(&self) -> bool {
        self.format.storage.storage.is_some() && self.format.storage.bucket.is_some()
    }
}

/// Shows the name of the file system and nothing secret.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SecretKeys {
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
                     there into the pods of the driver, as there is no mount pod"
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
                "secret key format-options: there is no file {} here; put the key itself into \
                 encrypt_rsa_key",
                path.display()
            )));
        }
        env.fill_in(&mut format.storage);
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
        let credential = digest::of_credentials(fields)?;
        let bucket = storage.bucket.as_deref().unwrap_or_default();
        policy.check_storage(storage.storage.as_deref().unwrap_or_default(), bucket)?;
        format.policy = Arc::clone(policy);
        let policy = Arc::clone(policy);
        Ok(Access {
            name: self.name,
            address,
            format,
            keeps_stored: self.keeps_stored,
            env,
            credential,
            policy,
        })
    }
}

type Pairs = BTreeMap<String, Secret>;
