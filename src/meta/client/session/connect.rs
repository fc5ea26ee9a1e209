//! Connecting to a volume: the engine, the setting, and whether this client may use it.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::engine::Env;
use crate::meta::record::Setting;
use crate::meta::record::version::Version;
use crate::meta::{Options, engine};
use crate::policy::Policy;

impl Meta {
    /// Opens the volume at `url`; fails if this client must not use it.
    pub async fn connect(url: &str, options: Options) -> Result<Arc<Self>> {
        let meta = Self::attach(url, options).await?;
        meta.load().await?;
        Ok(meta)
    }

    /// Connects to the store at `url`, whether or not it holds a volume: for formatting, and for
    /// inspecting volumes that this client must not use.
    pub async fn attach(url: &str, options: Options) -> Result<Arc<Self>> {
        Ok(Self::new(engine::connect(url).await?, options))
    }

    /// As [`Meta::attach`], with `env` instead of the process environment, and within `policy`.
    pub async fn attach_with(
        url: &str,
        env: Env<'_>,
        policy: &Arc<Policy>,
        options: Options,
    ) -> Result<Arc<Self>> {
        Ok(Self::new(engine::connect_with(url, env, policy).await?, options))
    }

    /// Loads the setting; fails if this client must not use the volume.
    pub async fn load(&self) -> Result<Arc<Setting>> {
        let setting = self.stored_setting().await?.ok_or_else(|| self.unformatted())?;
        setting.check_version(&Version::client())?;
        setting.check_stored()?;
        self.context.put_setting(setting);
        Ok(self.context.setting())
    }

    /// The stored setting, unchecked; none if the store holds no volume.
    pub async fn stored_setting(&self) -> Result<Option<Setting>> {
        match self.engine.load_setting().await? {
            Some(raw) if !raw.is_empty() => Setting::decode(&raw).map(Some),
            _ => Ok(None),
        }
    }

    /// Loads the setting again. If it belongs to another volume, or to a version that this client
    /// must not use, the volume is lost; any other change is published.
    pub async fn reload(&self) -> Result<()> {
        let known = self.context.setting();
        let Some(setting) = self.stored_setting().await? else {
            return Err(self.mark_lost(self.unformatted()));
        };
        if let Err(refused) = setting.check_meta_version() {
            return Err(self.mark_lost(refused));
        }
        if setting.uuid != known.uuid {
            return Err(self.mark_lost(Error::Refused(format!(
                "{} held volume {} ({}) and now holds {} ({})",
                self.engine.address(),
                known.name,
                known.uuid,
                setting.name,
                setting.uuid
            ))));
        }
        if setting != *known {
            // If the new setting is invalid, the current one stays in use.
            setting.check_stored()?;
            self.context.put_setting(setting);
            self.lifecycle.publish_setting(self.context.setting());
        }
        Ok(())
    }

    fn unformatted(&self) -> Error {
        Error::Refused(format!("{} holds no volume: format it first", self.engine.address()))
    }

    fn mark_lost(&self, why: Error) -> Error {
        self.lifecycle.mark_lost(why.clone());
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::{Attr, FileKind};
    use crate::meta::{Ino, Timestamp};

    async fn stored(name: &str, change: fn(&mut Setting)) -> Arc<Meta> {
        let meta = Meta::attach(&format!("memkv://{name}"), Options::default()).await.unwrap();
        let mut setting = Setting::new("vol", uuid::Uuid::nil()).unwrap();
        change(&mut setting);
        let root = Attr::new(FileKind::Dir, 0o777, 0, 0, Ino::ROOT, Timestamp::from_secs(1));
        meta.engine.store_setting(&setting.encode().unwrap(), &root, None).await.unwrap();
        meta
    }

    #[tokio::test]
    async fn an_invalid_setting_is_refused_with_its_field() {
        type Case = (&'static str, fn(&mut Setting), &'static str);
        let cases: [Case; 6] = [
            ("open-1", |setting| setting.block_size = -1, "block size -1 KiB"),
            ("open-2", |setting| setting.block_size = 100_000, "block size 100000 KiB"),
            ("open-3", |setting| setting.name = "../../..".to_owned(), "volume name \"../../..\""),
            ("open-4", |setting| setting.uuid = "../x".to_owned(), "UUID \"../x\""),
            ("open-5", |setting| setting.shards = 1 << 40, "shards"),
            ("open-6", |setting| setting.trash_days = -3, "trash days -3"),
        ];
        for (name, change, what) in cases {
            let meta = stored(name, change).await;
            let error = meta.load().await.unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{error:?}");
            assert!(error.to_string().contains(what), "{error}");
        }
        stored("open-7", |_| {}).await.load().await.unwrap();
    }

    #[tokio::test]
    async fn a_setting_that_becomes_invalid_leaves_the_current_one_in_use() {
        let meta = stored("open-8", |_| {}).await;
        meta.load().await.unwrap();
        stored("open-8", |setting| setting.block_size = 3).await;
        assert!(meta.reload().await.unwrap_err().to_string().contains("block size 3 KiB"));
        assert_eq!(meta.context.setting().block_size, 4096);
    }
}
