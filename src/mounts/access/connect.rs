//! From an access to open metadata; formatting what is not there, and keeping keys up to date.

use std::sync::Arc;
use std::time::Duration;

use tracing::info;
use uuid::Uuid;

use super::{Access, plain};
use crate::error::{Error, Result};
use crate::meta::record::Setting;
use crate::meta::{Meta, Options};
use crate::options::storage::Bucket;

/// How often it is looked whether another client has just made the volume, and how long in between.
const LOOKS: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(300);

impl Access {
    /// Opens the metadata. A volume is made only if none is there and the Secret says where its
    /// objects are to be; one that is there is never made again, only its keys are brought up to
    /// date.
    pub async fn connect(&self, options: Options) -> Result<Arc<Meta>> {
        let read_only = options.read_only;
        let env = |name: &str| self.env.meta(name);
        let meta = Meta::attach_with(self.address.expose(), &env, options).await?;
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
        let setting = self.format.fresh(&self.name, Uuid::new_v4()).map_err(told)?;
        let made = self.format.create(meta, setting, &self.overrides()).await;
        let Err(error) = made else {
            info!(volume = self.name, place = self.place(), "the volume was made");
            return Ok(());
        };
        // Another client may have been faster: then its mark is what was in the way.
        for _ in 0..LOOKS {
            if let Some(setting) = meta.stored_setting().await? {
                return self.check(&setting);
            }
            tokio::time::sleep(BETWEEN).await;
        }
        Err(told(error))
    }

    /// Stores the keys of the Secret, if they are others than those that are stored and work.
    async fn refresh(&self, meta: &Meta, mut setting: Setting) -> Result<bool> {
        if self.keeps || !self.names_storage() {
            return Ok(false);
        }
        setting.decrypt()?;
        let mut wanted = setting.clone();
        self.format.storage.credentials(&mut wanted);
        // A token belongs to its key.
        if wanted.access_key != setting.access_key && self.format.storage.session_token.is_none() {
            wanted.session_token = crate::secret::Secret::default();
        }
        if wanted == setting {
            return Ok(false);
        }
        let bucket = Bucket::open(&wanted, &self.overrides()).map_err(told)?;
        bucket.test().await.map_err(told)?;
        meta.init(wanted, false).await?;
        info!(volume = self.name, "the keys of the volume were changed");
        Ok(true)
    }
}

/// What a layer without types of its own says, by the error it was about, if there was one.
fn told(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let error = error.into();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    let mut texts: Vec<String> = Vec::new();
    while let Some(at) = cause {
        if let Some(known) = at.downcast_ref::<Error>() {
            return known.clone();
        }
        texts.push(at.to_string());
        cause = at.source();
    }
    plain(texts.join(": "))
}
