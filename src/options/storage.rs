//! Where data lies: the options that say so, and what is done with the place before it is used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use tracing::warn;

use crate::meta::record::Setting;
use crate::meta::record::secret::Secret;
use crate::object::{self, ObjectStore};
use crate::volume::storage::{Overrides, spec};

/// Data storage
#[derive(Args)]
pub struct StorageOptions {
    /// Object storage type (file, s3, oss, ...)
    #[arg(long, help_heading = "Data storage")]
    pub storage: Option<String>,
    /// Bucket URL, or a directory for `file`
    #[arg(long, help_heading = "Data storage")]
    pub bucket: Option<String>,
    /// Access key of the object storage; a new volume takes it from `ACCESS_KEY` otherwise
    #[arg(long, help_heading = "Data storage")]
    pub access_key: Option<String>,
    /// Secret key; other users can see it here, so prefer `SECRET_KEY` when creating a volume
    #[arg(long, help_heading = "Data storage")]
    pub secret_key: Option<String>,
    /// Session token; prefer `SESSION_TOKEN` when creating a volume
    #[arg(long, help_heading = "Data storage")]
    pub session_token: Option<String>,
    /// Default storage class
    #[arg(long, help_heading = "Data storage")]
    pub storage_class: Option<String>,
    /// Tag of uploaded objects, key=value
    #[arg(long, value_parser = parse_tag, help_heading = "Data storage")]
    pub tag: Option<String>,
}

/// Secrets never show, not even in a debug line.
impl std::fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageOptions")
            .field("storage", &self.storage)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

impl StorageOptions {
    /// Sets type and bucket; a directory becomes absolute.
    pub fn place(&self, setting: &mut Setting) -> anyhow::Result<()> {
        if let Some(storage) = &self.storage {
            setting.storage = storage.to_lowercase();
        }
        if let Some(bucket) = &self.bucket {
            setting.bucket.clone_from(bucket);
        }
        if self.storage.is_none() && self.bucket.is_none() {
            return Ok(());
        }
        if setting.bucket.is_empty() {
            bail!("storage {:?} needs --bucket", setting.storage);
        }
        if setting.storage == "file" {
            setting.bucket = absolute_dir(&setting.bucket)?;
        }
        Ok(())
    }

    /// Sets keys; `setting` must hold its secrets in the clear.
    pub fn credentials(&self, setting: &mut Setting) {
        if let Some(key) = &self.access_key {
            setting.access_key.clone_from(key);
        }
        if let Some(key) = &self.secret_key {
            setting.secret_key = Secret::new(key.as_str());
        }
        if let Some(token) = &self.session_token {
            setting.session_token = Secret::new(token.as_str());
        }
    }
}

/// An object that says whose place it is.
const MARK: &str = "juicefs_uuid";

/// Objects looked at to find one that matters: those of a test that broke off do not.
const LOOK: usize = 1000;

/// The place of a volume's objects, to be tested and claimed.
pub struct Bucket(Arc<dyn ObjectStore>);

impl Bucket {
    /// Also finds out whether a private key can be used.
    pub fn open(setting: &Setting, said: &Overrides) -> anyhow::Result<Self> {
        let mut spec = spec(setting, said)?;
        // Whoever waits for it wants to know now.
        spec.retries = 0;
        Ok(Self(object::open(&spec)?))
    }

    /// Writes, reads and deletes an object.
    pub async fn test(&self) -> anyhow::Result<()> {
        self.probe(0, true).await
    }

    /// As [`Bucket::test`], for a tier; some cannot be read from at once.
    pub async fn probe(&self, tier: u8, reads: bool) -> anyhow::Result<()> {
        if is_unchecked() {
            return Ok(());
        }
        let place = self.0.place();
        let tested = object::probe(self.0.as_ref(), tier, reads).await;
        tested.with_context(|| format!("storage {place} does not work"))
    }

    /// Makes sure that nothing is there, and says whose it is from now on.
    pub async fn claim(&self, uuid: &str) -> anyhow::Result<()> {
        if is_unchecked() {
            return Ok(());
        }
        let place = self.0.place();
        match self.0.list("", "", LOOK).await {
            Ok(found) => {
                let matters = |key: &str| !key.starts_with(object::TEST_PREFIX);
                if let Some(one) = found.iter().find(|one| one.size > 0 && matters(&one.key)) {
                    bail!(
                        "storage {place} is not empty: it has {:?}; remove what is there or choose \
                         another name",
                        one.key
                    );
                }
            }
            // Keys that may not list are enough to work with.
            Err(error) => warn!(%error, "nobody knows whether the storage is empty"),
        }
        let mark = uuid.as_bytes().to_vec().into();
        self.0.put(MARK, mark, 0).await.with_context(|| format!("storage {place}"))
    }

    /// Takes the claim back.
    pub async fn release(&self) {
        if is_unchecked() {
            return;
        }
        if let Err(error) = self.0.delete(MARK).await {
            warn!(%error, "the storage keeps the mark of a volume that was not made");
        }
    }
}

/// Whether nothing is to be asked of the storage, as when it cannot be reached from here.
fn is_unchecked() -> bool {
    std::env::var_os("JFS_NO_CHECK_OBJECT_STORAGE").is_some_and(|value| !value.is_empty())
}

/// Where the data of a volume without a bucket lies.
pub fn default_bucket() -> String {
    if nix::unistd::geteuid().is_root() {
        return "/var/jfs".to_owned();
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    home.join(".juicefs/local").display().to_string()
}

/// A directory as the setting stores it: absolute, with a slash at the end.
fn absolute_dir(path: &str) -> anyhow::Result<String> {
    let full = std::path::absolute(Path::new(path))
        .with_context(|| format!("bucket {path:?}: no absolute path"))?;
    let mut text =
        full.to_str().with_context(|| format!("bucket {path:?} is not UTF-8"))?.to_owned();
    if !text.ends_with('/') {
        text.push('/');
    }
    Ok(text)
}

pub fn parse_tag(text: &str) -> anyhow::Result<String> {
    match text.split_once('=') {
        _ if text.is_empty() => Ok(String::new()),
        Some((key, value)) if !key.is_empty() && !value.contains('=') => Ok(text.to_owned()),
        _ => bail!("tag {text:?} is not key=value"),
    }
}

impl StorageOptions {
    /// What was said, and for keys that were not, what the environment says.
    pub fn or_environment(&self) -> Self {
        let key = |said: &Option<String>, name: &str| {
            said.clone().or_else(|| std::env::var(name).ok().filter(|value| !value.is_empty()))
        };
        Self {
            storage: self.storage.clone(),
            bucket: self.bucket.clone(),
            access_key: key(&self.access_key, "ACCESS_KEY"),
            secret_key: key(&self.secret_key, "SECRET_KEY"),
            session_token: key(&self.session_token, "SESSION_TOKEN"),
            storage_class: self.storage_class.clone(),
            tag: self.tag.clone(),
        }
    }

    /// Nothing said.
    pub fn none() -> Self {
        Self {
            storage: None,
            bucket: None,
            access_key: None,
            secret_key: None,
            session_token: None,
            storage_class: None,
            tag: None,
        }
    }
}
