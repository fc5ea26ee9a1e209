//! From an access to open metadata; formatting what is not there, and keeping keys up to date.

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

/// How often it is looked whether another client has just made the volume, and how long in between.
const LOOKS: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(300);

impl Access {
    /// Opens the metadata. A volume is made only if none is there and the Secret says where its
    /// objects are to be; one that is there is never made again, only its keys are brought up to
    /// date.
    pub async fn connect(&self, options: Options) -> Result<Arc<Meta>> {
        let read_only = options.read_only;
        let meta = self.attach(options).await?;
        match meta.stored_setting().await? {
            Some(setting) => {
                self.check(&setting)?;
                if !read_only {
                    self.refresh(&meta, setting).await?;
                }
            }
            None if self.names_storage() && !read_only => self.format(&meta).await?,
            None => {
                return Err(Error::Refused(format!(
                    "{} holds no volume, and the Secret names no storage and bucket to make one",
                    self.place()
                )));
            }
        }
        meta.load().await?;
        Ok(meta)
    }

    /// Makes sure that this access opens the file system that `meta` has open: by a login of its own, not
    /// by that of whoever opened it.
    pub async fn prove(&self, meta: &Meta) -> Result<()> {
        let options = Options { read_only: true, no_background_jobs: true, ..Options::default() };
        let own = self.attach(options).await?;
        let found = own.stored_setting().await;
        let _ = own.close().await;
        let Some(found) = found? else {
            return Err(Error::Refused(format!("{} holds no volume", self.place())));
        };
        self.check(&found)?;
        if found.uuid != meta.facts().setting().uuid {
            return Err(Error::Refused(format!(
                "{} holds another file system than the one that is published",
                self.place()
            )));
        }
        Ok(())
    }

    /// A client of the metadata, with what the environment of this file system says.
    async fn attach(&self, options: Options) -> Result<Arc<Meta>> {
        let password = self.env.password(&self.policy)?;
        let env = |name: &str| self.env.meta(name, &password);
        Meta::attach_with(self.address.expose(), &env, &self.policy, options).await
    }

    /// Brings the stored keys up to date, if the Secret has others; whoever follows the setting of
    /// this client is told. Answers whether something has changed.
    pub async fn update(&self, meta: &Meta) -> Result<bool> {
        if meta.facts().options.read_only {
            return Ok(false);
        }
        let Some(setting) = meta.stored_setting().await? else {
            return Err(Error::Refused(format!("{} holds no volume any more", self.place())));
        };
        self.check(&setting)?;
        self.refresh(meta, setting).await
    }

    fn check(&self, setting: &Setting) -> Result<()> {
        if setting.name == self.name {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{} holds volume {:?}, and the Secret names {:?}",
            self.place(),
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
            info!(volume = self.name, place = self.place(), "the volume was made");
            return Ok(());
        };
        let error = to_error(&error);
        if matches!(error, Error::Forbidden(_)) {
            return Err(error);
        }
        // Another client may have been faster: then its mark is what was in the way.
        for _ in 0..LOOKS {
            if let Some(setting) = meta.stored_setting().await? {
                return self.check(&setting);
            }
            tokio::time::sleep(BETWEEN).await;
        }
        Err(error)
    }

    /// Stores the keys of the Secret, if they are others than those that are stored and work.
    async fn refresh(&self, meta: &Meta, mut setting: Setting) -> Result<bool> {
        if self.keeps || !self.names_storage() {
            return Ok(false);
        }
        setting.decrypt()?;
        let mut wanted = setting.clone();
        self.format.storage.apply_credentials(&mut wanted);
        // A token belongs to its key.
        if wanted.access_key != setting.access_key && self.format.storage.session_token.is_none() {
            wanted.session_token = crate::secret::Secret::default();
        }
        if wanted == setting {
            return Ok(false);
        }
        if let Some(proxy) = self.env.proxy() {
            // Whoever owns the proxy decides whether the keys seem to work.
            warn!(
                volume = self.name,
                "the Secret has other keys than the volume; they are not stored, as they could only \
                 be tried through its own {proxy}"
            );
            return Ok(false);
        }
        let bucket = Bucket::open(&wanted, &self.overrides()).map_err(|error| to_error(&error))?;
        bucket.test().await.map_err(|error| to_error(&error))?;
        meta.init(wanted, false).await?;
        info!(volume = self.name, "the keys of the volume were changed");
        Ok(true)
    }
}
