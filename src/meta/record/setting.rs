//! Setting: the volume's format record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The volume's setting. Field order is the stored order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub struct Setting {
    pub name: String,
    #[serde(rename = "UUID")]
    pub uuid: String,
    pub storage: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_class: String,
    pub tiers: Option<BTreeMap<String, Tier>>,
    pub bucket: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_token: String,
    /// KiB.
    pub block_size: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub compression: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub shards: i64,
    #[serde(skip_serializing_if = "is_false")]
    pub hash_prefix: bool,
    /// Bytes; 0 = no limit.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub capacity: u64,
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub inodes: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encrypt_key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encrypt_algo: String,
    /// The three secrets are ciphertext.
    #[serde(skip_serializing_if = "is_false")]
    pub key_encrypted: bool,
    /// Mbps.
    #[serde(skip_serializing_if = "is_zero")]
    pub upload_limit: i64,
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
    #[serde(skip_serializing_if = "is_false")]
    pub dir_stats: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub user_group_quota: bool,
    #[serde(rename = "EnableACL")]
    pub enable_acl: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ranger_rest_url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ranger_service: String,
    #[serde(skip_serializing_if = "is_false")]
    pub change_log: bool,
    /// Seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub change_log_max_age: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub change_log_max_lines: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kerb_conf: String,
    /// Keys this client does not know; kept on rewrite.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub struct Tier {
    #[serde(rename = "ID")]
    pub id: u8,
    pub storage_class: String,
    pub tag: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero_u64(value: &u64) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !*value
}
