//! `format`: creates a volume, or updates what may change in an existing one.

use anyhow::bail;
use clap::Args;
use tracing::info;
use uuid::Uuid;

use crate::meta::record::Setting;
use crate::meta::{Meta, Options};
use crate::options::format::FormatArgs;
use crate::options::storage::Bucket;
use crate::volume::storage::Overrides;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Create a volume with its metadata in Redis and its data in S3:
    jfs-mount format redis://localhost/1 myjfs --storage s3 --bucket https://mybucket.s3.eu-central-1.amazonaws.com
  Create one on this host, to try it out:
    jfs-mount format sqlite3://myjfs.db myjfs")]
pub struct Format {
    /// Address of the metadata, such as `redis://localhost/1` or `sqlite3://myjfs.db`
    #[arg(value_name = "META-URL")]
    meta: String,
    /// Name of the volume; the prefix of all its objects
    #[arg(value_name = "NAME")]
    name: String,
    /// Overwrite an existing setting
    #[arg(long)]
    force: bool,
    /// Leave an existing volume alone
    #[arg(long)]
    no_update: bool,
    #[command(flatten)]
    args: FormatArgs,
}

impl Format {
    pub async fn run(self) -> anyhow::Result<()> {
        let meta = Meta::attach(&self.meta, Options::default()).await?;
        let overrides = Overrides::from_environment()?;
        let setting = match meta.stored_setting().await? {
            Some(old) if self.no_update => old,
            Some(old) if !self.force => {
                let setting = self.updated(old)?;
                Bucket::open(&setting, &overrides)?.test().await?;
                meta.init(setting, false).await?
            }
            Some(old) => {
                let uuid = Uuid::parse_str(&old.uuid).unwrap_or_else(|_| Uuid::new_v4());
                let setting = self.new_setting(uuid)?;
                Bucket::open(&setting, &overrides)?.test().await?;
                meta.init(setting, true).await?
            }
            None => self.args.create(&meta, self.new_setting(Uuid::new_v4())?, &overrides).await?,
        };
        meta.close().await?;
        info!("volume {} is formatted", setting.name);
        println!("{}", setting.without_secrets().display()?);
        Ok(())
    }

    fn new_setting(&self, uuid: Uuid) -> anyhow::Result<Setting> {
        let mut setting = self.args.new_setting(&self.name, uuid)?;
        self.args.storage.or_environment().apply_credentials(&mut setting);
        Ok(setting)
    }

    /// Applies the given options to the setting of an existing volume, as far as they may change.
    fn updated(&self, mut setting: Setting) -> anyhow::Result<Setting> {
        if setting.name != self.name {
            bail!(
                "there is already a volume named {:?} in {}",
                setting.name,
                crate::meta::engine::masked(&self.meta)
            );
        }
        setting.decrypt()?;
        self.args.storage.apply_location(&mut setting)?;
        self.args.apply_changes(&mut setting)?;
        Ok(setting)
    }
}
