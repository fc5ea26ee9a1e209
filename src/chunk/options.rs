//! How the data of a volume is moved and kept. The defaults are those of JuiceFS.

/// Options of one volume's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Uploads at the same time.
    pub max_uploads: usize,
    /// Downloads at the same time.
    pub max_downloads: usize,
    /// Blocks fetched whole at the same time after only a part of them was read.
    pub prefetch: usize,
    /// Of the blocks that are read, only those shorter than a full one go into the cache.
    pub cache_partial_only: bool,
    /// All blocks that are written go into the cache, not only those shorter than a full one.
    pub cache_large_write: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_uploads: 20,
            max_downloads: 200,
            prefetch: 1,
            cache_partial_only: false,
            cache_large_write: false,
        }
    }
}
