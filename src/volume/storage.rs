//! Where a volume stores its objects: from its setting, and from options of this client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::meta::record::Setting;
use crate::object::{Encryption, Metrics, Spec, Tier};
use crate::policy::Policy;
use crate::secret::Secret;

/// The options of a client for the object store, which override the setting.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub storage: Option<String>,
    pub bucket: Option<String>,
    /// Of files without a tier.
    pub storage_class: Option<String>,
    /// `key=value`, of files without a tier.
    pub tag: Option<String>,
    pub retries: Option<u32>,
    pub get_timeout: Option<Duration>,
    pub put_timeout: Option<Duration>,
    /// Mbps, 0 for no limit.
    pub upload_limit: Option<u64>,
    /// Mbps, 0 for no limit.
    pub download_limit: Option<u64>,
    /// Of the volume's private key, if it is protected by one.
    pub passphrase: Secret,
    pub instance_credentials: bool,
    /// Whether writing an object to a file waits for the disk; true by default.
    pub sync: Option<bool>,
    /// Takes precedence over the environment of the process, for keys and regions missing in the
    /// setting.
    pub env: BTreeMap<String, Secret>,
    /// Which of all these, and of the setting, may be used.
    pub policy: Arc<Policy>,
    pub metrics: Option<Metrics>,
}

impl Overrides {
    /// Reads the environment: `JFS_RSA_PASSPHRASE` as in JuiceFS, `JFS_FILE_SYNC=false` and
    /// `JFS_INSTANCE_CREDENTIALS=true`.
    pub fn from_environment() -> Result<Self> {
        let value = |name| std::env::var(name).unwrap_or_default();
        let passphrase = value("JFS_RSA_PASSPHRASE");
        Ok(Self {
            passphrase: Secret::new(passphrase),
            sync: flag("JFS_FILE_SYNC", &value("JFS_FILE_SYNC"))?,
            instance_credentials: flag(
                "JFS_INSTANCE_CREDENTIALS",
                &value("JFS_INSTANCE_CREDENTIALS"),
            )?
            .unwrap_or(false),
            ..Self::default()
        })
    }
}

/// Returns how to open the objects of a volume, with the secrets of the setting decrypted.
///
/// Limits are configured in Mbps; 85 % of these are for bodies, as in JuiceFS, and the rest for
/// overhead.
pub fn spec(setting: &Setting, overrides: &Overrides) -> Result<Spec> {
    let mut plain = setting.clone();
    plain.decrypt()?;
    let storage = overrides.storage.as_ref().unwrap_or(&plain.storage);
    let bucket = overrides.bucket.as_ref().unwrap_or(&plain.bucket);
    let mut spec = Spec::new(storage, bucket);
    spec.access_key.clone_from(&plain.access_key);
    spec.secret_key = plain.secret_key.clone();
    spec.session_token = plain.session_token.clone();
    spec.prefix = format!("{}/", plain.name);
    spec.shards = u32::try_from(plain.shards)
        .map_err(|_| Error::BadInput(format!("setting: {} shards", plain.shards)))?;
    spec.tiers = (0..=u8::MAX)
        .filter_map(|id| plain.tier(id))
        .map(|tier| (tier.id, Tier { class: tier.storage_class, tag: tier.tag }))
        .collect();
    if let Some(class) = &overrides.storage_class {
        spec.tiers.entry(0).or_default().class.clone_from(class);
    }
    if let Some(tag) = &overrides.tag {
        spec.tiers.entry(0).or_default().tag.clone_from(tag);
    }
    if !plain.encrypt_key.is_empty() {
        let (key, passphrase) = (plain.encrypt_key.clone(), overrides.passphrase.clone());
        spec.encryption = Some(Encryption { algo: plain.encrypt_algo.clone(), key, passphrase });
    }
    spec.retries = overrides.retries.unwrap_or(spec.retries);
    spec.get_timeout = overrides.get_timeout.unwrap_or(spec.get_timeout);
    spec.put_timeout = overrides.put_timeout.unwrap_or(spec.put_timeout);
    spec.upload_limit = bytes_per_second(overrides.upload_limit, plain.upload_limit);
    spec.download_limit = bytes_per_second(overrides.download_limit, plain.download_limit);
    spec.instance_credentials = overrides.instance_credentials;
    spec.sync = overrides.sync.unwrap_or(spec.sync);
    spec.env.clone_from(&overrides.env);
    spec.policy = Arc::clone(&overrides.policy);
    spec.metrics.clone_from(&overrides.metrics);
    Ok(spec)
}

fn bytes_per_second(overrides: Option<u64>, stored: i64) -> u64 {
    let mbps = overrides.unwrap_or_else(|| stored.try_into().unwrap_or_default());
    mbps.saturating_mul(1_000_000 / 8 * 85 / 100)
}

/// Parses a switch of the environment.
pub fn flag(name: &str, value: &str) -> Result<Option<bool>> {
    match value.to_lowercase().as_str() {
        "" => Ok(None),
        "1" | "true" => Ok(Some(true)),
        "0" | "false" => Ok(Some(false)),
        other => Err(Error::BadInput(format!("{name}={other} is neither true nor false"))),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn setting() -> Setting {
        let mut setting = Setting::new("vol", Uuid::nil()).unwrap();
        setting.storage = "S3".to_owned();
        setting.bucket = "http://host/bucket-%d".to_owned();
        setting.shards = 3;
        setting.access_key = "key".to_owned();
        setting.secret_key = Secret::new("secret");
        setting.session_token = Secret::new("token");
        setting.upload_limit = 100;
        setting
    }

    #[test]
    fn the_setting_names_the_object_store() {
        let mut setting = setting();
        setting.encrypt().unwrap();
        let spec = spec(&setting, &Overrides::default()).unwrap();
        assert_eq!((spec.storage.as_str(), spec.prefix.as_str()), ("s3", "vol/"));
        assert_eq!((spec.bucket.as_str(), spec.shards), ("http://host/bucket-%d", 3));
        assert_eq!((spec.secret_key.expose(), spec.session_token.expose()), ("secret", "token"));
        assert_eq!((spec.upload_limit, spec.download_limit), (10_625_000, 0));
        assert_eq!(spec.tiers[&0], Tier::default());
        assert!(spec.encryption.is_none());
    }

    #[test]
    fn a_volume_older_than_tiers_has_its_storage_class() {
        let mut setting = setting();
        setting.storage_class = "COLD".to_owned();
        setting.tiers = None;
        assert_eq!(spec(&setting, &Overrides::default()).unwrap().tiers[&0].class, "COLD");
        let overrides = Overrides { storage_class: Some("HOT".to_owned()), ..Overrides::default() };
        assert_eq!(spec(&setting, &overrides).unwrap().tiers[&0].class, "HOT");
        let overrides = Overrides { tag: Some("a=b".to_owned()), ..Overrides::default() };
        let tier = Tier { class: "COLD".to_owned(), tag: "a=b".to_owned() };
        assert_eq!(spec(&setting, &overrides).unwrap().tiers[&0], tier);
    }

    #[test]
    fn options_of_the_client_override_the_setting() {
        let overrides = Overrides {
            bucket: Some("/elsewhere/".to_owned()),
            storage: Some("file".to_owned()),
            upload_limit: Some(8),
            download_limit: Some(16),
            retries: Some(2),
            ..Overrides::default()
        };
        let spec = spec(&setting(), &overrides).unwrap();
        assert_eq!((spec.storage.as_str(), spec.bucket.as_str()), ("file", "/elsewhere/"));
        assert_eq!((spec.upload_limit, spec.download_limit), (850_000, 1_700_000));
        assert_eq!(spec.retries, 2);
    }

    #[test]
    fn a_private_key_is_used_with_its_passphrase() {
        let mut setting = setting();
        setting.encrypt_key = Secret::new("key");
        let overrides = Overrides { passphrase: Secret::new("sesame"), ..Overrides::default() };
        let found = spec(&setting, &overrides).unwrap().encryption.unwrap();
        assert_eq!((found.key.expose(), found.passphrase.expose()), ("key", "sesame"));
        assert_eq!(found.algo, setting.encrypt_algo);
    }
}
