//! Options of the metadata client.

use std::time::Duration;

use crate::meta::Timestamp;
use crate::meta::record::Attr;

/// When reading a node updates its access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtimeMode {
    #[default]
    Never,
    /// If the atime is older than the mtime, the ctime or a day.
    Relative,
    /// As `Relative`, or if the atime is older than a second.
    Strict,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub read_only: bool,
    /// Runs no periodic jobs, and does not clean up stale sessions.
    pub no_background_jobs: bool,
    /// Zero: no heartbeats; the session expires after a year.
    pub heartbeat: Duration,
    pub mount_point: String,
    /// The directory of the volume that is mounted as the root.
    pub subdir: String,
    pub atime: AtimeMode,
    /// Adding or removing entries rewrites a directory's times at most this often.
    pub skip_dir_mtime: Duration,
    pub sort_dir: bool,
    /// Lets statfs use cached usage.
    pub fast_statfs: bool,
    /// For this long a cached attr of an open file is used without reading it again.
    pub open_cache: Duration,
    pub open_cache_limit: usize,
    /// Slices deleted at once; 0 deletes no objects at all.
    pub max_deletes: usize,
    /// Network interfaces whose addresses the session record lists; empty = all.
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

impl AtimeMode {
    /// Whether an access at this time should be recorded.
    pub fn is_due(self, node: &Attr, now: Timestamp) -> bool {
        const DAY: i128 = 24 * 3600 * 1_000_000_000;
        const SECOND: i128 = 1_000_000_000;
        let age = now.nanos_since(node.atime);
        let is_old = node.mtime > node.atime || node.ctime > node.atime || age > DAY;
        match self {
            Self::Never => false,
            Self::Relative => is_old,
            Self::Strict => is_old || age > SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Ino;
    use crate::meta::record::FileKind;

    #[test]
    fn each_atime_mode_is_due_as_documented() {
        let at = Timestamp::from_secs;
        let times = |atime, mtime, ctime| {
            let node = Attr::new(FileKind::File, 0, 0, 0, Ino::ROOT, at(0));
            Attr { atime: at(atime), mtime: at(mtime), ctime: at(ctime), ..node }
        };
        let day = 24 * 3600;
        // atime, mtime, ctime, now: relative, strict
        for (atime, mtime, ctime, now, relative, strict) in [
            (100, 100, 100, 100, false, false),
            (100, 100, 100, 101, false, false),
            (100, 100, 100, 102, false, true),
            (100, 101, 100, 100, true, true),
            (100, 100, 101, 100, true, true),
            (100, 100, 100, 100 + day, false, true),
            (100, 100, 100, 101 + day, true, true),
            (100, 90, 90, 50, false, false),
        ] {
            let node = times(atime, mtime, ctime);
            let due = |mode: AtimeMode| mode.is_due(&node, at(now));
            assert_eq!(
                (due(AtimeMode::Never), due(AtimeMode::Relative), due(AtimeMode::Strict)),
                (false, relative, strict),
                "{atime} {mtime} {ctime} at {now}"
            );
        }
    }
}
