//! Options about metadata, and how long it is cached.

use std::time::Duration;

use anyhow::bail;
use clap::Args;

use super::Warnings;
use crate::meta::{AtimeMode, Options};
use crate::options::durations::parse_duration;
use crate::volume::BackupOptions;

const MIN_HEARTBEAT: Duration = Duration::from_secs(1);
const MAX_HEARTBEAT: Duration = Duration::from_mins(10);
pub const BACKUP_INTERVAL: Duration = Duration::from_hours(1);
const MIN_BACKUP_INTERVAL: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata")]
pub struct MetaArgs {
    /// Directory of the volume that becomes the root of the mount; created if it is missing
    #[arg(long, value_name = "PATH")]
    pub subdir: Option<String>,
    /// Interval of automatic backups of metadata into the storage; 0 for none [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub backup_meta: Option<Duration>,
    /// Leave the trash out of backups
    #[arg(long)]
    pub backup_skip_trash: bool,
    /// Interval between two heartbeats of the session; 0 for none
    #[arg(long, value_name = "DURATION", default_value = "12s", value_parser = parse_duration)]
    pub heartbeat: Duration,
    /// Mount read-only
    #[arg(long)]
    pub read_only: bool,
    /// Leave background jobs (cleaning up, backups) to other clients
    #[arg(long)]
    pub no_bgjob: bool,
    /// When reading updates the atime: noatime, relatime or strictatime
    #[arg(long, value_name = "MODE", default_value = "noatime", value_parser = parse_atime)]
    pub atime_mode: Atime,
    /// Retries after which a directory's link count is left alone; only in the Go client [default: 20]
    #[arg(long, value_name = "N")]
    pub skip_dir_nlink: Option<u32>,
    /// Do not update a directory's mtime if it would change by less
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration)]
    pub skip_dir_mtime: Duration,
    /// List directories sorted by name
    #[arg(long)]
    pub sort_dir: bool,
    /// Reply to statfs from cached counters
    #[arg(long)]
    pub fast_statfs: bool,
    /// Network interfaces whose addresses the session shows, separated by commas [default: all]
    #[arg(long, value_name = "NAMES")]
    pub network_interfaces: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata cache")]
pub struct MetaCacheArgs {
    /// How long the kernel caches attributes
    #[arg(long, value_name = "DURATION", default_value = "1.0s", value_parser = parse_duration)]
    pub attr_cache: Duration,
    /// How long the kernel caches names of files
    #[arg(long, value_name = "DURATION", default_value = "1.0s", value_parser = parse_duration)]
    pub entry_cache: Duration,
    /// How long the kernel caches names of directories
    #[arg(long, value_name = "DURATION", default_value = "1.0s", value_parser = parse_duration)]
    pub dir_entry_cache: Duration,
    /// How long the kernel caches that a name does not exist
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub negative_entry_cache: Duration,
    /// Let the kernel cache directory listings, as long as attributes
    #[arg(long)]
    pub readdir_cache: bool,
    /// How long metadata of an open file is used without asking again
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub open_cache: Duration,
    /// How many closed files stay in the open cache; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub open_cache_limit: usize,
}

/// An [`AtimeMode`] and the word for it.
#[derive(Debug, Clone, Copy)]
pub struct Atime {
    pub mode: AtimeMode,
    pub word: &'static str,
}

impl MetaArgs {
    /// Returns the options of the metadata client. `read_only` may come from this or another group.
    pub fn options(
        &self,
        cache: &MetaCacheArgs,
        point: &str,
        max_deletes: usize,
        read_only: bool,
    ) -> Options {
        let interfaces = self.network_interfaces.as_deref().unwrap_or_default().split(',');
        let interfaces = interfaces.map(str::trim).filter(|name| !name.is_empty());
        Options {
            read_only,
            no_background_jobs: self.no_bgjob,
            heartbeat: self.heartbeat(),
            mount_point: point.to_owned(),
            subdir: self.subdir.clone().unwrap_or_default(),
            atime: self.atime_mode.mode,
            skip_dir_mtime: self.skip_dir_mtime,
            sort_dir: self.sort_dir,
            fast_statfs: self.fast_statfs,
            open_cache: cache.open_cache,
            open_cache_limit: cache.open_cache_limit,
            max_deletes,
            network_interfaces: interfaces.map(str::to_owned).collect(),
        }
    }

    /// Returns the interval, within bounds that other clients accept for a live session.
    pub fn heartbeat(&self) -> Duration {
        match self.heartbeat {
            Duration::ZERO => Duration::ZERO,
            given => given.clamp(MIN_HEARTBEAT, MAX_HEARTBEAT),
        }
    }

    /// Returns the interval of backups; zero if this client makes none.
    pub fn backup_interval(&self, read_only: bool) -> Duration {
        if read_only || self.no_bgjob {
            return Duration::ZERO;
        }
        self.backup_meta.unwrap_or(BACKUP_INTERVAL)
    }

    /// Returns how this client makes backups, if it does. Each takes at most `max_size` bytes of
    /// memory.
    pub fn backups(&self, read_only: bool, max_size: usize) -> Option<BackupOptions> {
        let (interval, skip_trash) = (self.backup_interval(read_only), self.backup_skip_trash);
        (!interval.is_zero()).then_some(BackupOptions { interval, skip_trash, max_size })
    }

    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        // Without `..`, so that a new option is not forgotten here.
        let Self {
            subdir: _,
            backup_meta,
            backup_skip_trash: _,
            heartbeat: given_heartbeat,
            read_only: _,
            no_bgjob: _,
            atime_mode: _,
            skip_dir_nlink,
            skip_dir_mtime: _,
            sort_dir: _,
            fast_statfs: _,
            network_interfaces: _,
        } = self;
        if let Some(interval) = backup_meta.filter(|interval| !interval.is_zero())
            && interval < MIN_BACKUP_INTERVAL
        {
            bail!("--backup-meta {interval:?}: must be at least 5 minutes");
        }
        if skip_dir_nlink.is_some() {
            warnings.add_no_effect("--skip-dir-nlink", "link counts are always kept here");
        }
        let heartbeat = self.heartbeat();
        if heartbeat != *given_heartbeat {
            warnings.add(format!("--heartbeat {given_heartbeat:?} becomes {heartbeat:?}"));
        }
        Ok(())
    }
}

impl MetaCacheArgs {
    pub fn check(&self, warnings: &mut Warnings) {
        // Without `..`, so that a new option is not forgotten here.
        let Self {
            attr_cache,
            entry_cache: _,
            dir_entry_cache: _,
            negative_entry_cache: _,
            readdir_cache,
            open_cache: _,
            open_cache_limit: _,
        } = self;
        if *readdir_cache && attr_cache.is_zero() {
            warnings.add("--readdir-cache gains little without --attr-cache".to_owned());
        }
    }
}

fn parse_atime(text: &str) -> anyhow::Result<Atime> {
    let known = [
        Atime { mode: AtimeMode::Never, word: "noatime" },
        Atime { mode: AtimeMode::Relative, word: "relatime" },
        Atime { mode: AtimeMode::Strict, word: "strictatime" },
    ];
    match known.into_iter().find(|atime| atime.word == text) {
        Some(atime) => Ok(atime),
        None => bail!("use noatime, relatime or strictatime"),
    }
}
