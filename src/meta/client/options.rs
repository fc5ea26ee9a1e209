//! What a user may choose about the metadata client.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtimeMode {
    #[default]
    Never,
    /// Older than mtime or ctime, or than a day.
    Relative,
    /// Older than a second as well.
    Strict,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub read_only: bool,
    /// No hourly jobs and no cleaning of stale sessions.
    pub no_background_jobs: bool,
    /// Zero: the session never needs refreshing (it expires after a year).
    pub heartbeat: Duration,
    pub mount_point: String,
    /// Directory of the volume that appears as the root.
    pub subdir: String,
    pub atime: AtimeMode,
    /// A directory's times are not rewritten more often than this by entries that come and go.
    pub skip_dir_mtime: Duration,
    pub sort_dir: bool,
    /// Answer statfs from what is cached.
    pub fast_statfs: bool,
    /// Files open for at most this long need not be checked again.
    pub open_cache: Duration,
    pub open_cache_limit: usize,
    /// At most this many slices are deleted at once; 0 deletes no objects at all.
    pub max_deletes: usize,
    /// Network interfaces whose addresses the session record names; empty = all.
    pub network_interfaces: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            no_background_jobs: false,
            heartbeat: Duration::from_secs(12),
            mount_point: String::new(),
            subdir: String::new(),
            atime: AtimeMode::Never,
            skip_dir_mtime: Duration::from_millis(100),
            sort_dir: false,
            fast_statfs: false,
            open_cache: Duration::ZERO,
            open_cache_limit: 10_000,
            max_deletes: 10,
            network_interfaces: Vec::new(),
        }
    }
}
