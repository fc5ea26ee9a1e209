//! Options of the cache, as in JuiceFS's mount options.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::eviction::Eviction;
use super::glob;
use crate::chunk::Budget;
use crate::error::{Error, Result};

/// Size of the cache in memory if no directory can be used.
pub(super) const FALLBACK_SIZE: u64 = 100 << 20;

#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Cache directories; empty caches in memory.
    pub dirs: Vec<PathBuf>,
    /// Bytes, over all directories. 0 caches nothing.
    pub size: u64,
    /// Blocks, over all directories. 0 is no limit.
    pub items: u64,
    /// The fraction of a disk, in bytes and in inodes, that stays free.
    pub free_ratio: f32,
    /// Mode of new files.
    pub mode: u32,
    pub eviction: Eviction,
    pub checksum: Checksum,
    /// Time between two scans of the disks. 0 scans once.
    pub scan_interval: Duration,
    /// Blocks not used for this long are dropped. 0 never drops them.
    pub expire: Duration,
    /// Blocks staged at the same time. 0 is no limit.
    pub max_stage_write: usize,
    /// The budget for a cache in memory, which takes at most an eighth of it.
    pub memory: Option<Arc<Budget>>,
}

/// How much of a file is verified when a part of it is read. Files have checksums unless this is
/// `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    None,
    /// Verifies only reads of the whole block.
    Full,
    /// Verifies the segments that lie within the range.
    Shrink,
    /// Extends the range to whole segments and verifies all of them.
    #[default]
    Extend,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            dirs: Vec::new(),
            size: 100 << 30,
            items: 0,
            free_ratio: 0.1,
            mode: 0o600,
            eviction: Eviction::default(),
            checksum: Checksum::default(),
            scan_interval: Duration::from_hours(1),
            expire: Duration::ZERO,
            max_stage_write: 1000,
            memory: None,
        }
    }
}

impl CacheOptions {
    /// Returns the defaults with the directories of `--cache-dir`: `memory`, or paths and patterns
    /// separated by `:` (or by `,` if there is no `:`). Reads the file system to expand patterns.
    pub fn parse(dirs: &str) -> Result<Self> {
        let mut options = Self::default();
        if dirs.trim() == "memory" {
            return Ok(options);
        }
        let separator = if dirs.contains(':') { ':' } else { ',' };
        for pattern in dirs.split(separator).map(str::trim).filter(|text| !text.is_empty()) {
            options.dirs.extend(glob::expand(pattern));
        }
        if options.dirs.is_empty() {
            return Err(Error::bad_input(format!("cache-dir {dirs:?} names no directory")));
        }
        // The order determines where older clients stored a block.
        options.dirs.sort();
        options.dirs.dedup();
        Ok(options)
    }

    pub(super) fn validate(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.free_ratio) {
            let ratio = self.free_ratio;
            return Err(Error::bad_input(format!("free-space-ratio {ratio} is not in [0, 1)")));
        }
        if self.mode & !0o777 != 0 || self.mode & 0o600 != 0o600 {
            let mode = self.mode;
            return Err(Error::bad_input(format!(
                "cache-mode {mode:o} does not let the owner read and write"
            )));
        }
        if let Some(dir) = self.dirs.iter().find(|dir| !dir.is_absolute()) {
            let dir = dir.display();
            return Err(Error::bad_input(format!("cache-dir {dir} is not an absolute path")));
        }
        Ok(())
    }
}

impl FromStr for Checksum {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "none" => Self::None,
            "full" => Self::Full,
            "shrink" => Self::Shrink,
            "extend" => Self::Extend,
            _ => {
                return Err(Error::bad_input(format!(
                    "verify-cache-checksum {text:?} is not one of none, full, shrink, extend"
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_split_and_sorted() {
        let dirs = |text| CacheOptions::parse(text).unwrap().dirs;
        assert_eq!(dirs("/b:/a/"), [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(dirs("/b,/a"), [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(dirs("/a:/b,c"), [PathBuf::from("/a"), PathBuf::from("/b,c")]);
        assert_eq!(dirs("memory"), Vec::<PathBuf>::new());
    }

    #[test]
    fn invalid_options_are_refused_by_name() {
        let refused = |text: &str| CacheOptions::parse(text).is_err();
        assert!(refused("") && refused(":"));
        let ok = CacheOptions::parse("/a").unwrap();
        for (bad, word) in [
            (CacheOptions { free_ratio: 1.0, ..ok.clone() }, "free-space-ratio"),
            (CacheOptions { free_ratio: f32::NAN, ..ok.clone() }, "free-space-ratio"),
            (CacheOptions { mode: 0o400, ..ok.clone() }, "cache-mode"),
            (CacheOptions { mode: 0o4600, ..ok.clone() }, "cache-mode"),
            (CacheOptions { dirs: vec!["a".into()], ..ok.clone() }, "cache-dir"),
        ] {
            let error = bad.validate().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        ok.validate().unwrap();
        assert!("LRU".parse::<Eviction>().unwrap_err().to_string().contains("cache-eviction"));
        assert!("some".parse::<Checksum>().unwrap_err().to_string().contains("checksum"));
    }
}
