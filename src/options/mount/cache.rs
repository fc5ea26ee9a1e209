//! Options about data buffers in memory and the cache on local disks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::storage::StorageArgs;
use super::{Parsed, Warnings};
use crate::chunk::{CacheOptions, Checksum, Eviction, Hours, Options, Writeback};
use crate::options::default_paths::{home, user_path};
use crate::options::durations::parse_duration;
use crate::options::sizes::{parse_mebibytes, parse_plain_bytes};

/// Blocks cannot pass through less memory than this.
const MIN_BUFFER_SIZE: u64 = 32 << 20;
/// The `--cache-dir` of a cache in memory.
const MEMORY: &str = "memory";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data cache")]
pub struct CacheArgs {
    /// Memory for data being read and written, in MiB unless a unit is given
    #[arg(long, value_name = "SIZE", default_value = "300M", value_parser = parse_mebibytes)]
    pub buffer_size: u64,
    /// Maximum bytes read ahead in one stream, in MiB unless a unit is given [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    pub max_readahead: Option<u64>,
    /// Blocks prefetched whole at the same time after only a part of them was read
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub prefetch: usize,
    /// Acknowledge blocks once they are on the local disk, and upload them later
    #[arg(long)]
    pub writeback: bool,
    /// Stage only smaller blocks for later upload, in bytes unless a unit is given; 0 for all
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_plain_bytes)]
    pub writeback_threshold_size: u64,
    /// How long staged blocks wait before they are uploaded
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub upload_delay: Duration,
    /// Hours of the day in which staged blocks are uploaded, such as 22-6
    #[arg(long, value_name = "HOURS", value_parser = Parsed::<Hours>::parse)]
    pub upload_hours: Option<Parsed<Hours>>,
    /// Directories of the cache, separated by colons, or `memory` [default: /var/jfsCache for root,
    /// ~/.juicefs/cache for others]
    #[arg(long, value_name = "DIRS")]
    pub cache_dir: Option<String>,
    /// Mode of the files in the cache, in octal
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    pub cache_mode: u32,
    /// Size of the cache, in MiB unless a unit is given; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = parse_mebibytes)]
    pub cache_size: u64,
    /// Maximum number of blocks in the cache; 0 for as many as there is room
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cache_items: u64,
    /// Part of the disk to keep free
    #[arg(long, value_name = "RATIO", default_value_t = 0.1, value_parser = parse_ratio)]
    pub free_space_ratio: f64,
    /// Cache only blocks of which a part was read
    #[arg(long)]
    pub cache_partial_only: bool,
    /// Also cache whole blocks that were written
    #[arg(long)]
    pub cache_large_write: bool,
    /// How cached blocks are checked: none, full, shrink or extend
    #[arg(long, value_name = "LEVEL", default_value = "extend", value_parser = Parsed::<Checksum>::parse)]
    pub verify_cache_checksum: Parsed<Checksum>,
    /// Eviction policy of the cache: 2-random, lru or none
    #[arg(long, value_name = "POLICY", default_value = "2-random", value_parser = Parsed::<Eviction>::parse)]
    pub cache_eviction: Parsed<Eviction>,
    /// Interval between two scans of the cache directories
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub cache_scan_interval: Duration,
    /// Evict blocks unused for this long; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub cache_expire: Duration,
    /// Size of the whole cache, if `cache_size` is only the share of this volume in it
    #[arg(skip)]
    pub total_cache_size: Option<u64>,
}

impl CacheArgs {
    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        // Without `..`, so that a new option is not forgotten here.
        let Self {
            buffer_size,
            max_readahead: _,
            prefetch: _,
            writeback,
            writeback_threshold_size,
            upload_delay,
            upload_hours,
            cache_dir: _,
            cache_mode: _,
            cache_size,
            cache_items: _,
            free_space_ratio: _,
            cache_partial_only: _,
            cache_large_write: _,
            verify_cache_checksum: _,
            cache_eviction,
            cache_scan_interval: _,
            cache_expire: _,
            total_cache_size: _,
        } = self;
        if *writeback && *cache_size == 0 {
            bail!("--writeback needs a cache, but --cache-size is 0");
        }
        if *writeback && self.is_in_memory() {
            bail!("--writeback needs a disk, but --cache-dir is {MEMORY}");
        }
        if !writeback {
            let staging_options = [
                ("--upload-delay", !upload_delay.is_zero()),
                ("--upload-hours", upload_hours.is_some()),
                ("--writeback-threshold-size", *writeback_threshold_size > 0),
            ];
            for (option, _) in staging_options.iter().filter(|(_, is_given)| *is_given) {
                warnings.add_no_effect(option, "nothing is uploaded later without --writeback");
            }
        }
        if self.is_in_memory() && cache_eviction.value == Eviction::Lru {
            bail!("--cache-eviction lru needs a disk, but --cache-dir is {MEMORY}");
        }
        if *buffer_size < MIN_BUFFER_SIZE {
            warnings.add("--buffer-size is raised to 32 MiB, the minimum".to_owned());
        }
        if u32::try_from(*writeback_threshold_size).is_err() {
            bail!("--writeback-threshold-size: no block is that large");
        }
        Ok(())
    }

    /// Returns the bytes of memory for data.
    pub fn buffer(&self) -> u64 {
        self.buffer_size.max(MIN_BUFFER_SIZE)
    }

    /// Returns the options of the chunk store.
    pub fn data(&self, storage: &StorageArgs, read_only: bool) -> Options {
        let writeback = self.writeback.then(|| Writeback {
            threshold: u32::try_from(self.writeback_threshold_size).ok().filter(|size| *size > 0),
            delay: self.upload_delay,
            hours: self.upload_hours.as_ref().map(|hours| hours.value),
        });
        Options {
            max_uploads: storage.max_uploads,
            max_downloads: storage.max_downloads,
            prefetch: if self.cache_size == 0 { 0 } else { self.prefetch },
            cache_partial_only: self.cache_partial_only,
            cache_large_write: self.cache_large_write,
            writeback,
            verify: storage.verify_reads,
            read_only,
        }
    }

    /// Returns the options of the cache, or `None` if there is to be none.
    pub fn cache(&self, storage: &StorageArgs) -> anyhow::Result<Option<CacheOptions>> {
        if self.cache_size == 0 {
            return Ok(None);
        }
        #[allow(clippy::cast_possible_truncation, reason = "a ratio needs few digits")]
        let free_ratio = self.free_space_ratio as f32;
        Ok(Some(CacheOptions {
            size: self.total_cache_size.unwrap_or(self.cache_size),
            items: self.cache_items,
            free_ratio,
            mode: self.cache_mode,
            eviction: self.cache_eviction.value,
            checksum: self.verify_cache_checksum.value,
            scan_interval: self.cache_scan_interval,
            expire: self.cache_expire,
            max_stage_write: storage.max_stage_write,
            ..CacheOptions::parse(&self.dirs()?)?
        }))
    }

    pub fn is_in_memory(&self) -> bool {
        self.cache_dir.as_deref() == Some(MEMORY)
    }

    /// Returns the absolute directories, separated by colons, or `memory`.
    pub fn dirs(&self) -> anyhow::Result<String> {
        let Some(given) = &self.cache_dir else {
            return Ok(user_path("/var/jfsCache", ".juicefs/cache").display().to_string());
        };
        if given == MEMORY {
            return Ok(given.clone());
        }
        let separator = if given.contains(':') { ':' } else { ',' };
        let dirs: anyhow::Result<Vec<String>> = given
            .split(separator)
            .map(str::trim)
            .filter(|dir| !dir.is_empty())
            .map(|dir| Ok(absolute(dir)?.display().to_string()))
            .collect();
        let dirs = dirs?;
        if dirs.is_empty() {
            bail!("--cache-dir {given:?} names no directory");
        }
        Ok(dirs.join(":"))
    }
}

fn absolute(dir: &str) -> anyhow::Result<PathBuf> {
    if let Some(rest) = dir.strip_prefix("~/") {
        return Ok(home().join(rest));
    }
    std::path::absolute(Path::new(dir)).with_context(|| format!("--cache-dir {dir:?}"))
}

fn parse_mode(text: &str) -> anyhow::Result<u32> {
    let mode = u32::from_str_radix(text, 8).context("not an octal number")?;
    if mode & !0o777 != 0 || mode & 0o600 != 0o600 {
        bail!("not a mode from 0600 to 0777 that lets the owner read and write");
    }
    Ok(mode)
}

fn parse_ratio(text: &str) -> anyhow::Result<f64> {
    let ratio: f64 = text.parse().context("not a number")?;
    if !(0.0..1.0).contains(&ratio) {
        bail!("must be at least 0 and less than 1");
    }
    Ok(ratio)
}
