//! Opens the metadata of a file system, formats it if needed, and keeps its keys up to date.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};
use uuid::Uuid;

use super::Access;
use crate::error::{Error, Result};
use crate::meta::record::Setting;
use crate::meta::{Meta, Options};
use crate::options::storage::Bucket;
use crate::options::to_error;

/// How often to check whether another client has just formatted the file system, and the pause in
/// between.
const FORMAT_CHECKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(300);

impl Access {
    /// Opens the metadata. Formats the file system only if there is none and the Secret names an
    /// object store. An existing one is never formatted again; only its keys are updated.
    pub async fn connect(&self, options: Options) -> Result<Arc<Meta>> {
        let read_only = options.read_only;
        let meta = self.attach(options).await?;
        match meta.stored_setting().await? {
            Some(setting) => {
                self.check_name(&setting)?;
                if !read_only {
                    self.store_changed_keys(&meta, setting).await?;
                }
            }
            None if self.has_object_store() && !read_only => self.format(&meta).await?,
            None => {
                return Err(Error::Refused(format!(
                    "{} has no file system, and the Secret has no storage and bucket to format one",
                    self.masked_address()
                )));
            }
        }
        meta.load().await?;
        Ok(meta)
    }

    /// Verifies that this access can open the file system that `meta` has open, by a login of its
    /// own.
    pub async fn verify_login(&self, meta: &Meta) -> Result<()> {
        let options = Options { read_only: true, no_background_jobs: true, ..Options::default() };
        let own = self.attach(options).await?;
        let found = own.stored_setting().await;
        let _ = own.close().await;
        let Some(found) = found? else {
            return Err(Error::Refused(format!("{} has no file system", self.masked_address())));
        };
        self.check_name(&found)?;
        if found.uuid != meta.context().setting().uuid {
            return Err(Error::Refused(format!(
                "{} has another file system than the one that is published",
                self.masked_address()
            )));
        }
        Ok(())
    }

    /// Returns a metadata client that uses the Secret's environment.
    async fn attach(&self, options: Options) -> Result<Arc<Meta>> {
        let password = self.env.password(&self.policy)?;
        let env = |name: &str| self.env.meta(name, &password);
        Meta::attach_with(self.address.expose(), &env, &self.policy, options).await
    }

    /// Updates the stored keys if the Secret has others, and notifies the subscribers of this
    /// client's settings. Returns whether the keys have changed.
    pub async fn update_keys(&self, meta: &Meta) -> Result<bool> {
        if meta.context().options.read_only {
            return Ok(false);
        }
        let Some(setting) = meta.stored_setting().await? else {
            return Err(Error::Refused(format!(
                "{} has no file system any more",
                self.masked_address()
            )));
        };
        self.check_name(&setting)?;
        self.store_changed_keys(meta, setting).await
    }

    fn check_name(&self, setting: &Setting) -> Result<()> {
        if setting.name == self.name {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{} has file system {:?}, but the Secret names {:?}",
            self.masked_address(),
            setting.name,
            self.name
        )))
    }

    async fn format(&self, meta: &Meta) -> Result<()> {
        let setting = self
            .format
            .new_setting(&self.name, Uuid::new_v4())
            .map_err(|error| to_error(&error))?;
        let made = self.format.create(meta, setting, &self.overrides()).await;
        let Err(error) = made else {
            info!(file_system = self.name, metadata = self.masked_address(), "formatted");
            return Ok(());
        };
        let error = to_error(&error);
        if matches!(error, Error::Forbidden(_)) {
            return Err(error);
        }
        // Another client may have formatted it first: then its test object was in the way.
        for _ in 0..FORMAT_CHECKS {
            if let Some(setting) = meta.stored_setting().await? {
                return self.check_name(&setting);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(error)
    }

    /// Stores the keys of the Secret if they differ from the stored ones and work.
    async fn store_changed_keys(&self, meta: &Meta, mut setting: Setting) -> Result<bool> {
        if self.keeps_stored || !self.has_object_store() {
            return Ok(false);
        }
        setting.decrypt()?;
        let mut updated = setting.clone();
        self.format.storage.apply_credentials(&mut updated);
        // A session token belongs to its access key.
        if updated.access_key != setting.access_key && self.format.storage.session_token.is_none() {
            updated.session_token = crate::secret::Secret::default();
        }
        if updated == setting {
            return Ok(false);
        }
        if let Some(proxy) = self.env.proxy() {
            // The owner of the proxy controls whether the keys seem to work.
            warn!(
                file_system = self.name,
                "the Secret has other keys than the file system; they are not stored, because they \
                 can only be tested through its own {proxy}"
            );
            return Ok(false);
        }
        let bucket = Bucket::open(&updated, &self.overrides()).map_err(|error| to_error(&error))?;
        bucket.test().await.map_err(|error| to_error(&error))?;
        meta.init(updated, false).await?;
        info!(file_system = self.name, "stored the changed keys of the Secret");
        Ok(true)
    }
}
