//! The options of a client for a volume, beside its setting.

use std::sync::Arc;

use prometheus::Registry;

use super::storage::Overrides;
use crate::chunk::{Budget, Cache, CacheOwner, Options};
use crate::meta::Ino;

/// JuiceFS's default of `--buffer-size`.
const BUFFER_SIZE: usize = 300 << 20;

pub struct VolumeOptions {
    pub storage: Overrides,
    pub data: Options,
    /// The memory for data; the volumes of one process may share it.
    pub budget: Arc<Budget>,
    /// The block cache of this process, if it has one.
    pub cache: Option<Arc<Cache>>,
    /// Who uses the cache, if its users must not share blocks.
    pub cache_owner: Option<CacheOwner>,
    /// The share of the cache that the volume may keep when others need space; `None`: all of it.
    pub cache_share: Option<u64>,
    /// Where the metrics of this volume are registered; for this volume only.
    pub registry: Registry,
    /// The directory whose usage is shown there.
    pub root: Ino,
}

impl Default for VolumeOptions {
    /// No cache on disk, and its own memory.
    fn default() -> Self {
        Self {
            storage: Overrides::default(),
            data: Options::default(),
            budget: Budget::new(BUFFER_SIZE),
            cache: None,
            cache_owner: None,
            cache_share: None,
            registry: Registry::new(),
            root: Ino::ROOT,
        }
    }
}
