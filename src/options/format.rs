//! The options of a new volume, some of which may also change an existing one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use uuid::Uuid;

use super::default_paths::default_bucket;
use super::sizes::{parse_block_size, parse_capacity};
use super::storage::{Bucket, StorageOptions};
use crate::meta::Meta;
use crate::meta::record::Setting;
use crate::meta::record::setting::block_size_for;
use crate::policy::Policy;
use crate::secret::Secret;
use crate::volume::storage::Overrides;

#[derive(Debug, Args)]
pub struct FormatArgs {
    #[command(flatten)]
    pub storage: StorageOptions,
    /// Size of a block, in KiB unless a unit is given
    #[arg(long, default_value = "4M", value_parser = parse_block_size, help_heading = "Data format")]
    pub block_size: u64,
    /// Compression of blocks: lz4, zstd or none
    #[arg(long, default_value = "none", help_heading = "Data format")]
    pub compress: String,
    /// Path of an RSA private key (PEM) to encrypt data with
    #[arg(long, help_heading = "Data format")]
    pub encrypt_rsa_key: Option<PathBuf>,
    /// Encryption of data: aes256gcm-rsa or chacha20-rsa
    #[arg(long, default_value = "aes256gcm-rsa", help_heading = "Data format")]
    pub encrypt_algo: String,
    /// Add a hash prefix to object names
    #[arg(long, help_heading = "Data format")]
    pub hash_prefix: bool,
    /// Spread blocks over this many buckets
    #[arg(long, default_value_t = 0, help_heading = "Data format")]
    pub shards: i64,
    /// Maximum space the volume may use, in GiB unless a unit is given
    #[arg(long, value_parser = parse_capacity, help_heading = "Management")]
    pub capacity: Option<u64>,
    /// Maximum inodes the volume may use
    #[arg(long, help_heading = "Management")]
    pub inodes: Option<u64>,
    /// Days that removed files stay in the trash
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..), help_heading = "Management")]
    pub trash_days: Option<i64>,
    /// Support POSIX ACLs; cannot be disabled again
    #[arg(long, help_heading = "Management")]
    pub enable_acl: bool,
    /// URL of the Ranger admin service
    #[arg(long, help_heading = "Management")]
    pub ranger_rest_url: Option<String>,
    /// Name of the Ranger service
    #[arg(long, help_heading = "Management")]
    pub ranger_service: Option<String>,
    /// Path of a Kerberos configuration file
    #[arg(long, help_heading = "Management")]
    pub kerberos_config_file: Option<PathBuf>,
    /// The private key itself, instead of a file
    #[arg(skip)]
    pub encrypt_key: Option<Secret>,
    /// Decides which files may be read
    #[arg(skip)]
    pub policy: Arc<Policy>,
}

impl FormatArgs {
    /// Creates a volume. Its bucket must work and be empty, and is claimed before the setting is
    /// stored.
    pub async fn create(
        &self,
        meta: &Meta,
        setting: Setting,
        overrides: &Overrides,
    ) -> anyhow::Result<Setting> {
        setting.check()?;
        let bucket = Bucket::open(&setting, overrides)?;
        bucket.test().await?;
        bucket.claim(&setting.uuid).await?;
        match meta.init(setting, false).await {
            Ok(setting) => Ok(setting),
            Err(error) => {
                bucket.release().await;
                Err(error.into())
            }
        }
    }

    /// Returns the setting of a new volume.
    pub fn new_setting(&self, name: &str, uuid: Uuid) -> anyhow::Result<Setting> {
        let mut setting = Setting::new(name, uuid)?;
        self.storage.apply_location(&mut setting)?;
        if self.storage.storage.is_none() && self.storage.bucket.is_none() {
            let bucket = Some(default_bucket());
            StorageOptions { bucket, ..StorageOptions::default() }.apply_location(&mut setting)?;
        }
        if let Some(class) = &self.storage.storage_class {
            setting.storage_class.clone_from(class);
            setting.tiers_mut().entry(0).or_default().storage_class.clone_from(class);
        }
        if let Some(tag) = &self.storage.tag {
            setting.tiers_mut().entry(0).or_default().tag.clone_from(tag);
        }
        setting.block_size = block_size_for(self.block_size);
        setting.compression.clone_from(&self.compress);
        setting.hash_prefix = self.hash_prefix;
        setting.shards = self.shards;
        setting.encrypt_algo.clone_from(&self.encrypt_algo);
        if let Some(path) = &self.encrypt_rsa_key {
            setting.encrypt_key = Secret::new(self.read_key(path)?);
        }
        if let Some(key) = &self.encrypt_key {
            setting.encrypt_key = key.clone();
        }
        setting.enable_acl = self.enable_acl;
        self.apply_changes(&mut setting)?;
        Ok(setting)
    }

    /// Applies the given options that may change; the secrets of `setting` must be decrypted.
    pub fn apply_changes(&self, setting: &mut Setting) -> anyhow::Result<()> {
        self.storage.apply_credentials(setting);
        setting.capacity = self.capacity.unwrap_or(setting.capacity);
        setting.inodes = self.inodes.unwrap_or(setting.inodes);
        setting.trash_days = self.trash_days.unwrap_or(setting.trash_days);
        if let Some(url) = &self.ranger_rest_url {
            setting.ranger_rest_url.clone_from(url);
        }
        if let Some(service) = &self.ranger_service {
            setting.ranger_service.clone_from(service);
        }
        if let Some(path) = &self.kerberos_config_file {
            setting.kerb_conf = self.policy.read_text("kerberos-config-file", path)?;
        }
        Ok(())
    }

    fn read_key(&self, path: &Path) -> anyhow::Result<String> {
        let pem = self.policy.read_text("encrypt-rsa-key", path)?;
        if !pem.contains("PRIVATE KEY-----") {
            bail!("key {}: not a private key in PEM format", path.display());
        }
        Ok(pem)
    }
}
