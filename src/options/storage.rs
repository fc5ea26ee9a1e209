//! The options that say where data is stored, and the test and claim of a bucket before its first use.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use tracing::warn;

use crate::meta::record::Setting;
use crate::meta::record::secret::Secret;
use crate::object::{self, ObjectStore};
use crate::volume::storage::{Overrides, spec};

/// Data storage
#[derive(Default, Args)]
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

/// Leaves out the secrets.
impl std::fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageOptions")
            .field("storage", &self.storage)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

impl StorageOptions {
    /// Sets the storage type and the bucket; a directory becomes absolute.
    pub fn apply_location(&self, setting: &mut Setting) -> anyhow::Result<()> {
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

    /// Sets the keys; the secrets of `setting` must be decrypted.
    pub fn apply_credentials(&self, setting: &mut Setting) {
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

/// The object that holds the UUID of the volume that owns the bucket.
const UUID_OBJECT: &str = "juicefs_uuid";

/// Objects listed to find out whether a bucket is empty; left-overs of interrupted tests do not count.
const LIST_LIMIT: usize = 1000;

/// The bucket of a volume, to be tested and claimed.
pub struct Bucket(Arc<dyn ObjectStore>);

impl Bucket {
    /// Opens the bucket; fails if the private key of an encrypted volume cannot be used.
    pub fn open(setting: &Setting, overrides: &Overrides) -> anyhow::Result<Self> {
        let mut spec = spec(setting, overrides)?;
        // The user waits for the result.
        spec.retries = 0;
        Ok(Self(object::open(&spec)?))
    }

    /// Writes, reads and deletes an object.
    pub async fn test(&self) -> anyhow::Result<()> {
        self.probe(0, true).await
    }

    /// As [`Bucket::test`], for a tier; objects of some tiers cannot be read at once.
    pub async fn probe(&self, tier: u8, reads: bool) -> anyhow::Result<()> {
        if is_unchecked() {
            return Ok(());
        }
        let place = self.0.place();
        let tested = object::probe(self.0.as_ref(), tier, reads).await;
        tested.with_context(|| format!("storage {place} does not work"))
    }

    /// Makes sure that the bucket is empty, and marks it as that of the volume.
    pub async fn claim(&self, uuid: &str) -> anyhow::Result<()> {
        if is_unchecked() {
            return Ok(());
        }
        let place = self.0.place();
        match self.0.list("", "", LIST_LIMIT).await {
            Ok(found) => {
                let counts = |key: &str| !key.starts_with(object::TEST_PREFIX);
                if let Some(one) = found.iter().find(|one| one.size > 0 && counts(&one.key)) {
                    bail!(
                        "storage {place} is not empty: it has {:?}; empty it or choose \
                         another name",
                        one.key
                    );
                }
            }
            // Credentials that may not list are enough for a volume.
            Err(error) => warn!(%error, "cannot check whether the storage is empty"),
        }
        let content = uuid.as_bytes().to_vec().into();
        self.0.put(UUID_OBJECT, content, 0).await.with_context(|| format!("storage {place}"))
    }

    /// Removes the mark of [`Bucket::claim`].
    pub async fn release(&self) {
        if is_unchecked() {
            return;
        }
        if let Err(error) = self.0.delete(UUID_OBJECT).await {
            warn!(%error, "cannot remove {UUID_OBJECT} from the storage, left by a volume that was not created");
        }
    }
}

/// Returns whether the storage must not be accessed, for instance if it cannot be reached from here.
fn is_unchecked() -> bool {
    std::env::var_os("JFS_NO_CHECK_OBJECT_STORAGE").is_some_and(|value| !value.is_empty())
}

/// Returns a directory as the setting stores it: absolute, with a slash at the end.
pub fn absolute_dir(path: &str) -> anyhow::Result<String> {
    let full = std::path::absolute(Path::new(path))
        .with_context(|| format!("bucket {path:?}: cannot be made absolute"))?;
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
    /// Returns the options, with missing keys taken from the environment.
    pub fn or_environment(&self) -> Self {
        let key = |given: &Option<String>, name: &str| {
            given.clone().or_else(|| std::env::var(name).ok().filter(|value| !value.is_empty()))
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
}
