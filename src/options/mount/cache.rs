//! Options about data in memory and on the disks of this host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::storage::StorageArgs;
use super::warnings::Warnings;
use crate::chunk::{CacheOptions, Checksum, Eviction, Hours, Options, Writeback};
use crate::options::durations::parse_duration;
use crate::options::home::{home, or_home};
use crate::options::sizes::{parse_mebibytes, parse_plain_bytes};

/// Less memory than this is too little for blocks to pass through.
const SMALLEST_BUFFER: u64 = 32 << 20;
/// A cache that is not on disk.
const MEMORY: &str = "memory";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data cache")]
pub struct CacheArgs {
    /// Memory for data being read and written, in MiB unless it says otherwise
    #[arg(long, value_name = "SIZE", default_value = "300M", value_parser = parse_mebibytes)]
    pub buffer_size: u64,
    /// Most bytes read ahead in one stream, in MiB unless it says otherwise [default: 8 blocks]
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    pub max_readahead: Option<u64>,
    /// Blocks fetched whole at the same time after only a part of them was read
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub prefetch: usize,
    /// Blocks count as written once they are on the disk of this host, and are uploaded later
    #[arg(long)]
    pub writeback: bool,
    /// Only smaller blocks are kept for later, in bytes unless it says otherwise; 0 for all
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_plain_bytes)]
    pub writeback_threshold_size: u64,
    /// How long blocks are kept before they are uploaded
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub upload_delay: Duration,
    /// Hours of the day in which kept blocks are uploaded, such as 22-6
    #[arg(long, value_name = "HOURS", value_parser = parse_hours)]
    pub upload_hours: Option<SaidHours>,
    /// Directories of the cache, separated by colons, or `memory` [default: /var/jfsCache for root,
    /// ~/.juicefs/cache for others]
    #[arg(long, value_name = "DIRS")]
    pub cache_dir: Option<String>,
    /// Mode of the files in the cache, in octal
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    pub cache_mode: u32,
    /// Size of the cache, in MiB unless it says otherwise; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = parse_mebibytes)]
    pub cache_size: u64,
    /// Most blocks in the cache; 0 for as many as there is room
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cache_items: u64,
    /// Part of a disk that stays free
    #[arg(long, value_name = "RATIO", default_value_t = 0.1, value_parser = parse_ratio)]
    pub free_space_ratio: f64,
    /// Keep only blocks of which a part was read
    #[arg(long)]
    pub cache_partial_only: bool,
    /// Keep whole blocks after they were written, too
    #[arg(long)]
    pub cache_large_write: bool,
    /// How cached blocks are checked: none, full, shrink or extend
    #[arg(long, value_name = "LEVEL", default_value = "extend", value_parser = parse_checksum)]
    pub verify_cache_checksum: SaidChecksum,
    /// Which block makes room for another: 2-random, lru or none
    #[arg(long, value_name = "POLICY", default_value = "2-random", value_parser = parse_eviction)]
    pub cache_eviction: SaidEviction,
    /// Interval between two looks at what is in the cache
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub cache_scan_interval: Duration,
    /// Drop blocks that were not used for so long; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub cache_expire: Duration,
    /// Size of the whole cache, where `cache_size` is only the share of this volume
    #[arg(skip)]
    pub whole_size: Option<u64>,
}

/// A value and the word that was said for it.
pub type SaidHours = (Hours, String);
pub type SaidChecksum = (Checksum, String);
pub type SaidEviction = (Eviction, String);

impl CacheArgs {
    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        if self.writeback && self.cache_size == 0 {
            bail!("--writeback needs a cache, and --cache-size is 0");
        }
        if self.writeback && self.is_in_memory() {
            bail!("--writeback needs a disk, and --cache-dir is {MEMORY}");
        }
        if !self.writeback {
            let late = [
                ("--upload-delay", !self.upload_delay.is_zero()),
                ("--upload-hours", self.upload_hours.is_some()),
                ("--writeback-threshold-size", self.writeback_threshold_size > 0),
            ];
            for (option, _) in late.iter().filter(|(_, said)| *said) {
                warnings.no_effect(option, "nothing is uploaded later without --writeback");
            }
        }
        if self.is_in_memory() && self.cache_eviction.0 == Eviction::Lru {
            bail!("--cache-eviction lru needs a disk, and --cache-dir is {MEMORY}");
        }
        if self.buffer_size < SMALLEST_BUFFER {
            warnings.say("--buffer-size: less than 32 MiB does not do, 32 MiB it is".to_owned());
        }
        if u32::try_from(self.writeback_threshold_size).is_err() {
            bail!("--writeback-threshold-size: no block is that large");
        }
        Ok(())
    }

    /// Bytes of memory for data.
    pub fn buffer(&self) -> u64 {
        self.buffer_size.max(SMALLEST_BUFFER)
    }

    /// How data is moved and kept.
    pub fn data(&self, storage: &StorageArgs, read_only: bool) -> Options {
        let writeback = self.writeback.then(|| Writeback {
            threshold: u32::try_from(self.writeback_threshold_size).ok().filter(|size| *size > 0),
            delay: self.upload_delay,
            hours: self.upload_hours.as_ref().map(|(hours, _)| *hours),
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

    /// The cache itself; nothing if there is to be none.
    pub fn cache(&self, storage: &StorageArgs) -> anyhow::Result<Option<CacheOptions>> {
        if self.cache_size == 0 {
            return Ok(None);
        }
        #[allow(clippy::cast_possible_truncation, reason = "a ratio needs few digits")]
        let free_ratio = self.free_space_ratio as f32;
        Ok(Some(CacheOptions {
            size: self.whole_size.unwrap_or(self.cache_size),
            items: self.cache_items,
            free_ratio,
            mode: self.cache_mode,
            eviction: self.cache_eviction.0,
            checksum: self.verify_cache_checksum.0,
            scan_interval: self.cache_scan_interval,
            expire: self.cache_expire,
            max_stage_write: storage.max_stage_write,
            ..CacheOptions::parse(&self.dirs()?)?
        }))
    }

    pub fn is_in_memory(&self) -> bool {
        self.cache_dir.as_deref() == Some(MEMORY)
    }

    /// Absolute, in one text.
    pub fn dirs(&self) -> anyhow::Result<String> {
        let Some(said) = &self.cache_dir else {
            return Ok(or_home("/var/jfsCache", ".juicefs/cache").display().to_string());
        };
        if said == MEMORY {
            return Ok(said.clone());
        }
        let separator = if said.contains(':') { ':' } else { ',' };
        let dirs: anyhow::Result<Vec<String>> = said
            .split(separator)
            .map(str::trim)
            .filter(|dir| !dir.is_empty())
            .map(|dir| Ok(absolute(dir)?.display().to_string()))
            .collect();
        let dirs = dirs?;
        if dirs.is_empty() {
            bail!("--cache-dir {said:?} names no directory");
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

fn parse_hours(text: &str) -> anyhow::Result<SaidHours> {
    Ok((text.parse()?, text.to_owned()))
}

fn parse_checksum(text: &str) -> anyhow::Result<SaidChecksum> {
    Ok((text.parse()?, text.to_owned()))
}

fn parse_eviction(text: &str) -> anyhow::Result<SaidEviction> {
    Ok((text.parse()?, text.to_owned()))
}

fn parse_mode(text: &str) -> anyhow::Result<u32> {
    let mode = u32::from_str_radix(text, 8).context("not an octal number")?;
    if mode & !0o777 != 0 || mode & 0o600 != 0o600 {
        bail!("the owner must be able to read and write, and no more than modes are known");
    }
    Ok(mode)
}

fn parse_ratio(text: &str) -> anyhow::Result<f64> {
    let ratio: f64 = text.parse().context("not a number")?;
    if !(0.0..1.0).contains(&ratio) {
        bail!("a part of a disk lies between 0 and 1");
    }
    Ok(ratio)
}
