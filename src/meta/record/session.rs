//! Sessions: what a client says about itself.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub struct SessionInfo {
    pub version: String,
    pub host_name: String,
    #[serde(rename = "IPAddrs", skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
    pub mount_point: String,
    /// RFC 3339 with nanoseconds.
    pub mount_time: String,
    #[serde(rename = "ProcessID")]
    pub process_id: u32,
}
