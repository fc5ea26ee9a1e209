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

use crate::error::{Error, Result};
use crate::options::format::FormatArgs;
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
}

impl Access {
    /// Reads a Secret. A key that is not known, or a value that makes no sense, is refused by its
    /// name.
    pub fn from_secret<'a>(
        secret: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Self> {
        Keys::read(secret)?.into_access()
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

    /// Where the metadata is, without its password.
    pub fn place(&self) -> String {
        crate::meta::engine::masked(self.address.expose())
    }

    /// What the environment of this file system says about its objects.
    pub fn overrides(&self) -> Overrides {
        self.env.overrides()
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
    fn into_access(self) -> Result<Access> {
        let env = Environment::read(&self.envs)?;
        for (secret, dir) in &self.configs {
            if !std::path::Path::new(dir).is_dir() {
                return Err(Error::bad_input(format!(
                    "secret key configs: there is no directory {dir} here; mount Secret {secret} \
                     there into the pods of the driver, as there is no mount pod to do it"
                )));
            }
        }
        let mut format = FormatArgs::from_pairs(self.format_options())
            .map_err(|error| Error::bad_input(format!("secret key format-options: {error:#}")))?;
        format.encrypt_key = self.encrypt_key;
        if let Some(path) = format.encrypt_rsa_key.as_ref().filter(|path| !path.is_file()) {
            return Err(Error::bad_input(format!(
                "secret key format-options: there is no file {} here; give the key itself as \
                 encrypt_rsa_key",
                path.display()
            )));
        }
        env.complete(&mut format.storage);
        let address = match self.metaurl.expose() {
            url if url.contains("://") => self.metaurl.clone(),
            url => Secret::new(format!("redis://{url}")),
        };
        Ok(Access { name: self.name, address, format, keeps: self.keeps, env })
    }
}

/// The text of what went wrong above the layers that have a type for it.
fn plain(error: impl fmt::Display) -> Error {
    Error::BadInput(error.to_string())
}

type Pairs = BTreeMap<String, Secret>;
