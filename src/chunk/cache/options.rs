//! What the cache is asked to be, in the words of JuiceFS's mount options.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::glob;
use crate::chunk::Budget;
use crate::error::{Error, Result};

/// Memory for blocks if no directory can be used.
pub(super) const FALLBACK_SIZE: u64 = 100 << 20;

#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Where blocks lie; none keeps them in memory.
    pub dirs: Vec<PathBuf>,
    /// Bytes, over all directories. 0 keeps nothing.
    pub size: u64,
    /// Blocks, over all directories; 0 is as many as fit.
    pub items: u64,
    /// The part of a disk, in bytes and in inodes, that stays free.
    pub free_ratio: f32,
    /// Of the files.
    pub mode: u32,
    pub eviction: Eviction,
    pub checksum: Checksum,
    /// Between two looks at what really lies on the disk; 0 looks once.
    pub scan_interval: Duration,
    /// Blocks that nobody used for that long are dropped; 0 keeps them.
    pub expire: Duration,
    /// Blocks being staged at the same time; 0 is without limit.
    pub max_stage_write: usize,
    /// What blocks in memory, if they are kept there, are counted in: they take an eighth of it at most.
    pub memory: Option<Arc<Budget>>,
}

/// Which block makes room for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eviction {
    /// The one of two random ones that was not used for longer.
    #[default]
    TwoRandom,
    /// The one that was not used for longest.
    Lru,
    /// None: what is new is dropped.
    None,
}

/// How much of a file is checked when a part of it is read. Files have checksums unless `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    None,
    /// Only if the whole block is read.
    Full,
    /// The segments that lie within what is read.
    Shrink,
    /// All that is read, and to the ends of the segments.
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
    /// The defaults with the directories of `--cache-dir`: `memory`, or paths and patterns of paths
    /// with `:` (or, if there is none, `,`) between them. Looks at the file system for patterns.
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
        // The order decides where older clients have put a block.
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

impl FromStr for Eviction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "2-random" => Self::TwoRandom,
            "lru" => Self::Lru,
            "none" => Self::None,
            _ => {
                return Err(Error::bad_input(format!(
                    "cache-eviction {text:?} is none of 2-random, lru, none"
                )));
            }
        })
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
                    "verify-cache-checksum {text:?} is none of none, full, shrink, extend"
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
    fn options_that_make_no_sense_are_refused_by_name() {
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
