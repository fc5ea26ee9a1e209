//! Options about metadata, and for how long it may be kept.

use std::time::Duration;

use anyhow::bail;
use clap::Args;

use super::warnings::Warnings;
use crate::meta::{AtimeMode, Options};
use crate::options::durations::parse_duration;

const SHORTEST_HEARTBEAT: Duration = Duration::from_secs(1);
const LONGEST_HEARTBEAT: Duration = Duration::from_mins(10);
const SHORTEST_BACKUP: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata")]
pub struct MetaArgs {
    /// Directory of the volume that becomes the root of the mount; made if it is missing
    #[arg(long, value_name = "PATH")]
    pub subdir: Option<String>,
    /// Interval of automatic backups of metadata into the storage [default: 1h; none are made yet]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub backup_meta: Option<Duration>,
    /// Leave the trash out of backups
    #[arg(long)]
    pub backup_skip_trash: bool,
    /// Interval between two signs of life; 0 for none
    #[arg(long, value_name = "DURATION", default_value = "12s", value_parser = parse_duration)]
    pub heartbeat: Duration,
    /// Allow no changes
    #[arg(long)]
    pub read_only: bool,
    /// Leave background jobs (cleaning up, backups) to other clients
    #[arg(long)]
    pub no_bgjob: bool,
    /// When reading changes the atime: noatime, relatime or strictatime
    #[arg(long, value_name = "MODE", default_value = "noatime", value_parser = parse_atime)]
    pub atime_mode: Atime,
    /// Retries after which a directory's link count is left alone; only in the Go client [default: 20]
    #[arg(long, value_name = "N")]
    pub skip_dir_nlink: Option<u32>,
    /// Leave a directory's mtime alone if it would change by less
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration)]
    pub skip_dir_mtime: Duration,
    /// List directories in the order of names
    #[arg(long)]
    pub sort_dir: bool,
    /// Answer statfs from what this client knows
    #[arg(long)]
    pub fast_statfs: bool,
    /// Network interfaces whose addresses the session shows, separated by commas [default: all]
    #[arg(long, value_name = "NAMES")]
    pub network_interfaces: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata cache")]
pub struct MetaCacheArgs {
    /// How long the kernel keeps attributes
    #[arg(long, value_name = "DURATION", default_value = "1.0s", value_parser = parse_duration)]
    pub attr_cache: Duration,
    /// How long the kernel keeps names of files
    #[arg(long, value_name = "DURATION", default_value = "1.0s", value_parser = parse_duration)]
    pub entry_cache: Duration,
    /// How long the kernel keeps names of directories
    #[arg(long, value_name = "DURATION", default_value = "1.0s", value_parser = parse_duration)]
    pub dir_entry_cache: Duration,
    /// How long the kernel remembers that a name does not exist
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub negative_entry_cache: Duration,
    /// Let the kernel keep listings, for as long as attributes
    #[arg(long)]
    pub readdir_cache: bool,
    /// How long what is known of an open file is used without asking again
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub open_cache: Duration,
    /// How many closed files are remembered for that; 0 for no limit
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
    /// What the metadata client is to do at this mount point; `read_only` whoever asked for it.
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

    /// Within what others take for a sign of life.
    pub fn heartbeat(&self) -> Duration {
        match self.heartbeat {
            Duration::ZERO => Duration::ZERO,
            said => said.clamp(SHORTEST_HEARTBEAT, LONGEST_HEARTBEAT),
        }
    }

    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        if let Some(interval) = self.backup_meta.filter(|interval| !interval.is_zero()) {
            if interval < SHORTEST_BACKUP {
                bail!("--backup-meta {interval:?}: less than 5 minutes");
            }
            warnings.no_effect("--backup-meta", "this client makes no backups of metadata yet");
        }
        if self.backup_skip_trash {
            warnings.no_effect("--backup-skip-trash", "this client makes no backups yet");
        }
        if self.skip_dir_nlink.is_some() {
            warnings.no_effect("--skip-dir-nlink", "link counts are always kept here");
        }
        let heartbeat = self.heartbeat();
        if heartbeat != self.heartbeat {
            warnings.say(format!("--heartbeat {:?} becomes {heartbeat:?}", self.heartbeat));
        }
        Ok(())
    }
}

impl MetaCacheArgs {
    pub fn check(&self, warnings: &mut Warnings) {
        if self.readdir_cache && self.attr_cache.is_zero() {
            warnings.say("--readdir-cache gains little without --attr-cache".to_owned());
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
