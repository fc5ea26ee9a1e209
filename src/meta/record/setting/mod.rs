//! The setting: the volume's format record.

mod json;
mod rules;
pub mod secret;
pub mod version;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::secret::Secret;
pub use rules::{Compression, block_size_for};

/// The volume's setting. Field order is the stored order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "the stored record has them")]
pub struct Setting {
    pub name: String,
    #[serde(rename = "UUID")]
    pub uuid: String,
    pub storage: String,
    /// The storage class on volumes older than tiers; see [`Setting::tier`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_class: String,
    /// `None` on volumes older than tiers; see [`Setting::tier`].
    pub tiers: Option<BTreeMap<u8, Tier>>,
    pub bucket: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub secret_key: Secret,
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub session_token: Secret,
    /// KiB.
    pub block_size: i64,
    /// See [`Setting::compression`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub compression: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub shards: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub hash_prefix: bool,
    /// Bytes; 0 = no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub capacity: u64,
    /// 0 = no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub inodes: u64,
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub encrypt_key: Secret,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encrypt_algo: String,
    /// The three secrets are ciphertext.
    #[serde(skip_serializing_if = "is_zero")]
    pub key_encrypted: bool,
    /// Mbps.
    #[serde(skip_serializing_if = "is_zero")]
    pub upload_limit: i64,
    /// Mbps.
    #[serde(skip_serializing_if = "is_zero")]
    pub download_limit: i64,
    /// 0 = no trash.
    pub trash_days: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub meta_version: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub min_client_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub max_client_version: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub dir_stats: bool,
    #[serde(skip_serializing_if = "is_zero")]
    pub user_group_quota: bool,
    #[serde(rename = "EnableACL")]
    pub enable_acl: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ranger_rest_url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ranger_service: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub change_log: bool,
    /// Seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub change_log_max_age: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub change_log_max_lines: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kerb_conf: String,
    /// Keys that this client does not know; written back after the others.
    #[serde(skip)]
    pub unknown: Map<String, Value>,
}

/// How objects of one tier are stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub struct Tier {
    #[serde(rename = "ID")]
    pub id: u8,
    /// Empty = the store's default.
    pub storage_class: String,
    /// `key=value`, or empty.
    pub tag: String,
    /// Keys that this client does not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Tier {
    pub fn new(id: u8, storage_class: impl Into<String>) -> Self {
        Self { id, storage_class: storage_class.into(), ..Self::default() }
    }
}

impl Setting {
    /// Returns a tier by its number. Tier 0 is for files without a tier; on a volume older than
    /// tiers it has the class in `StorageClass`.
    pub fn tier(&self, id: u8) -> Option<Tier> {
        match &self.tiers {
            Some(tiers) => tiers.get(&id).cloned(),
            None if id == 0 => Some(Tier::new(0, &self.storage_class)),
            None => None,
        }
    }

    /// Returns the tiers for changing. `StorageClass` stays as it is: only older clients read it.
    pub fn tiers_mut(&mut self) -> &mut BTreeMap<u8, Tier> {
        let class = &self.storage_class;
        self.tiers.get_or_insert_with(|| BTreeMap::from([(0, Tier::new(0, class))]))
    }

    /// Returns the size of a full block in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.block_size.unsigned_abs() << 10
    }

    pub fn has_trash(&self) -> bool {
        self.trash_days > 0
    }
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
