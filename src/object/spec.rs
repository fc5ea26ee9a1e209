//! The parameters for opening a store, as plain values.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Metrics;
use crate::policy::Policy;
use crate::secret::Secret;

/// How and where objects are stored. Its debug output shows no secret.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The kind of store: see [`STORAGES`](super::STORAGES).
    pub storage: String,
    /// URL of the bucket, a directory for `file`, a name for `mem`. Contains `%d` if there are
    /// shards.
    pub bucket: String,
    /// Empty to look for credentials in the environment; `anonymous` to send none.
    pub access_key: String,
    pub secret_key: Secret,
    pub session_token: Secret,
    /// Prefix of every key, such as `name/`.
    pub prefix: String,
    /// Number of buckets that objects are distributed over; below 2 there is one.
    pub shards: u32,
    /// Storage class and tag by tier number. Without a tier 0, it is the store's default.
    pub tiers: BTreeMap<u8, Tier>,
    pub encryption: Option<Encryption>,
    /// How often a failed request is retried.
    pub retries: u32,
    /// Timeout of one attempt to read, list or head.
    pub get_timeout: Duration,
    /// Timeout of one attempt to write or delete.
    pub put_timeout: Duration,
    /// Upload bandwidth of bodies in bytes per second, exactly as given; 0 for no limit.
    pub upload_limit: u64,
    /// Download bandwidth of bodies in bytes per second, exactly as given; 0 for no limit.
    pub download_limit: u64,
    /// Whether credentials may come from the metadata service of a cloud machine.
    pub instance_credentials: bool,
    /// Whether `file` syncs an object to disk before it counts as stored.
    pub sync: bool,
    /// Variables that take precedence over the environment of the process: keys, regions and
    /// proxies.
    pub env: BTreeMap<String, Secret>,
    /// Restricts what may be opened.
    pub policy: Arc<Policy>,
    /// Where requests are counted, if at all.
    pub metrics: Option<Metrics>,
}

/// How the objects of one tier are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tier {
    /// Storage class; empty for the store's default.
    pub class: String,
    /// `key=value`, or empty.
    pub tag: String,
}

/// How bodies are encrypted.
#[derive(Debug, Clone)]
pub struct Encryption {
    /// `aes256gcm-rsa`, the default if empty, or `chacha20-rsa`.
    pub algo: String,
    /// An RSA private key in PEM format.
    pub key: Secret,
    /// The passphrase of the key, if it has one.
    pub passphrase: Secret,
}

impl Spec {
    /// Creates a spec with the defaults of a mount: ten retries, a minute for each attempt, no
    /// limits.
    pub fn new(storage: &str, bucket: &str) -> Self {
        Self {
            storage: storage.to_lowercase(),
            bucket: bucket.to_owned(),
            access_key: String::new(),
            secret_key: Secret::default(),
            session_token: Secret::default(),
            prefix: String::new(),
            shards: 0,
            tiers: BTreeMap::new(),
            encryption: None,
            retries: 10,
            get_timeout: Duration::from_mins(1),
            put_timeout: Duration::from_mins(1),
            upload_limit: 0,
            download_limit: 0,
            instance_credentials: false,
            sync: true,
            env: BTreeMap::new(),
            policy: Policy::unrestricted(),
            metrics: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_secret() {
        let mut spec = Spec::new("S3", "https://bucket.example.com");
        spec.secret_key = Secret::new("sesame");
        spec.session_token = Secret::new("sesame");
        spec.encryption = Some(Encryption {
            algo: String::new(),
            key: Secret::new("sesame"),
            passphrase: Secret::new("sesame"),
        });
        let shown = format!("{spec:?}");
        assert!(!shown.contains("sesame"), "{shown}");
        assert_eq!(spec.storage, "s3");
    }
}
