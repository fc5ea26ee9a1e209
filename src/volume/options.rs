//! What a client wants of a volume beside what its setting says.

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
    /// The memory for data; volumes of one process may share it.
    pub budget: Arc<Budget>,
    /// The block cache of this process, if it has one.
    pub cache: Option<Arc<Cache>>,
    /// Who uses the cache, where it has several users that must not share what is theirs.
    pub cache_owner: Option<CacheOwner>,
    /// What the volume may take of the cache when others need room; none: all.
    pub cache_share: Option<u64>,
    /// Where everything that is counted of the volume is to be seen; of this volume alone.
    pub registry: Registry,
    /// The directory whose usage is shown there.
    pub root: Ino,
}

impl Default for VolumeOptions {
    /// No cache on disk, and memory of its own.
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
