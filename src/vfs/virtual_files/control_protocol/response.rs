//! The data in replies, as JSON. The field names are those of JuiceFS.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The reply to an info request. A list without entries is `null`, except for the lists of locks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoResponse {
    pub ino: u64,
    pub failed: bool,
    pub reason: String,
    pub summary: InfoSummary,
    pub paths: Option<Vec<String>>,
    pub chunks: Option<Vec<InfoSlice>>,
    pub objects: Option<Vec<InfoObject>>,
    #[serde(rename = "PLocks")]
    pub plocks: Option<Vec<InfoRangeLock>>,
    #[serde(rename = "FLocks")]
    pub flocks: Option<Vec<InfoFileLock>>,
    /// Missing in replies of mounts older than 1.4.
    pub tier: Option<InfoTier>,
    #[serde(default)]
    pub restore_status: String,
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoSummary {
    pub length: u64,
    pub size: u64,
    pub files: u64,
    pub dirs: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoSlice {
    pub chunk_index: u64,
    pub id: u64,
    pub size: u64,
    pub off: u64,
    pub len: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoObject {
    pub chunk_index: u64,
    pub key: String,
    pub size: u64,
    pub off: u64,
    pub len: u64,
}

/// A range locked by fcntl(2).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoRangeLock {
    pub sid: u64,
    pub owner: u64,
    /// 0 for a read lock, 1 for a write lock.
    #[serde(rename = "Type")]
    pub kind: u32,
    pub pid: u32,
    pub start: u64,
    pub end: u64,
}

/// A lock by flock(2).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoFileLock {
    pub sid: u64,
    pub owner: u64,
    /// `R` or `W`.
    #[serde(rename = "Type")]
    pub kind: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InfoTier {
    #[serde(rename = "ID")]
    pub id: u8,
    pub storage_class: String,
    pub tag: String,
}

impl InfoResponse {
    /// An empty response for a node.
    pub fn new(ino: u64) -> Self {
        Self {
            ino,
            failed: false,
            reason: String::new(),
            summary: InfoSummary::default(),
            paths: None,
            chunks: None,
            objects: None,
            plocks: None,
            flocks: None,
            tier: Some(InfoTier::default()),
            restore_status: String::new(),
        }
    }
}

/// The reply to a warmup request.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct WarmupResponse {
    pub file_count: u64,
    pub slice_count: u64,
    pub total_bytes: u64,
    pub miss_bytes: u64,
    /// Bytes by cache directory. The Go client may send `null` for none.
    #[serde(deserialize_with = "null_as_empty")]
    pub locations: BTreeMap<String, u64>,
}

fn null_as_empty<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The reply to a summary request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SummaryResponse {
    pub errno: u8,
    pub tree: SummaryNode,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SummaryNode {
    pub inode: u64,
    pub path: String,
    #[serde(rename = "Type")]
    pub kind: u8,
    pub size: u64,
    pub files: u64,
    pub dirs: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<SummaryNode>,
}
