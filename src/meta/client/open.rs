//! Opening a volume: the engine, the setting, and whether this client may use it.

use std::sync::Arc;

use super::{Meta, Options};
use crate::error::{Error, Result};
use crate::meta::engine::{self, Env};
use crate::meta::record::Setting;
use crate::meta::record::version::Version;

impl Meta {
    /// Opens the volume at `url`; refuses if this client must not use it.
    pub async fn connect(url: &str, options: Options) -> Result<Arc<Self>> {
        let meta = Self::attach(url, options).await?;
        meta.load().await?;
        Ok(meta)
    }

    /// Connects to the store at `url`, whether or not it holds a volume: for formatting, and for
    /// looking at volumes that this client must not use.
    pub async fn attach(url: &str, options: Options) -> Result<Arc<Self>> {
        Ok(Self::new(engine::connect(url).await?, options))
    }

    /// As [`Meta::attach`], with `env` in place of the environment of the process.
    pub async fn attach_with(url: &str, env: Env<'_>, options: Options) -> Result<Arc<Self>> {
        Ok(Self::new(engine::connect_with(url, env).await?, options))
    }

    /// Loads the setting; refuses if this client must not use the volume.
    pub async fn load(&self) -> Result<Arc<Setting>> {
        let setting = self.stored_setting().await?.ok_or_else(|| self.unformatted())?;
        setting.check_version(&Version::client())?;
        self.facts.put_setting(setting);
        Ok(self.facts.setting())
    }

    /// The setting as it is stored, if the store holds a volume at all; nothing is checked.
    pub async fn stored_setting(&self) -> Result<Option<Setting>> {
        match self.engine.load_setting().await? {
            Some(raw) if !raw.is_empty() => Setting::decode(&raw).map(Some),
            _ => Ok(None),
        }
    }

    /// Loads the setting again. If the volume is not the one that was opened, or not for this client
    /// any more, it is lost; any other change is announced.
    pub async fn reload(&self) -> Result<()> {
        let known = self.facts.setting();
        let Some(setting) = self.stored_setting().await? else {
            return Err(self.lose(self.unformatted()));
        };
        if let Err(refused) = setting.check_meta_version() {
            return Err(self.lose(refused));
        }
        if setting.uuid != known.uuid {
            return Err(self.lose(Error::Refused(format!(
                "{} held volume {} ({}) and now holds {} ({})",
                self.engine.place(),
                known.name,
                known.uuid,
                setting.name,
                setting.uuid
            ))));
        }
        if setting != *known {
            self.facts.put_setting(setting);
            self.life.announce(self.facts.setting());
        }
        Ok(())
    }

    fn unformatted(&self) -> Error {
        Error::Refused(format!("{} holds no volume: format it first", self.engine.place()))
    }

    fn lose(&self, why: Error) -> Error {
        self.life.lose(why.clone());
        why
    }
}
