//! Options about the object storage, in addition to the volume's setting.

use std::time::Duration;

use anyhow::bail;
use clap::Args;

use super::Warnings;
use crate::chunk::Verify;
use crate::meta::record::Setting;
use crate::options::durations::parse_duration;
use crate::options::sizes::parse_mbps;
use crate::options::storage::{absolute_dir, parse_tag};
use crate::volume::storage::Overrides;

#[derive(Debug, Args)]
#[command(next_help_heading = "Data storage")]
pub struct StorageArgs {
    /// Type of the storage, instead of the volume's own
    #[arg(long, value_name = "TYPE")]
    pub storage: Option<String>,
    /// Address of the bucket, instead of the volume's own
    #[arg(long, value_name = "ADDRESS")]
    pub bucket: Option<String>,
    /// Storage class of objects that this client writes
    #[arg(long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// Tag of objects that this client uploads, key=value
    #[arg(long, value_parser = parse_tag)]
    pub tag: Option<String>,
    /// How long a download of an object may take
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub get_timeout: Duration,
    /// How long an upload of an object may take
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub put_timeout: Duration,
    /// Retries of a failed request, at least; for N retries, over at least 1 + 4 + ... + N*N seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub io_retries: u32,
    /// Uploads at the same time
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub max_uploads: usize,
    /// Downloads at the same time
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_downloads: usize,
    /// Blocks staged at the same time with --writeback; others are uploaded directly
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_stage_write: usize,
    /// Slices deleted at the same time; 0 deletes no objects
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub max_deletes: usize,
    /// Upload limit in Mbps [default: the volume's own]
    #[arg(long, value_name = "RATE", value_parser = parse_mbps)]
    pub upload_limit: Option<i64>,
    /// Download limit in Mbps [default: the volume's own]
    #[arg(long, value_name = "RATE", value_parser = parse_mbps)]
    pub download_limit: Option<i64>,
    /// Which blocks are read whole, to verify their checksum, when only a part is needed: all, cheap
    /// (up to 1 MiB) or none
    #[arg(long, value_name = "WHICH", default_value = "cheap", value_parser = parse_verify)]
    pub verify_reads: Verify,
    /// Test the storage before mounting
    #[arg(long)]
    pub check_storage: bool,
}

impl StorageArgs {
    /// Returns what overrides the setting: the options, and `environment` for what no option sets.
    pub fn overrides(
        &self,
        setting: &Setting,
        environment: Overrides,
    ) -> anyhow::Result<Overrides> {
        let storage = self.storage.as_ref().map(|storage| storage.to_lowercase());
        let is_file = storage.as_deref().unwrap_or(&setting.storage) == "file";
        let bucket = match &self.bucket {
            Some(dir) if is_file => Some(absolute_dir(dir)?),
            given => given.clone(),
        };
        Ok(Overrides {
            storage,
            bucket,
            storage_class: self.storage_class.clone(),
            tag: self.tag.clone(),
            retries: Some(self.io_retries),
            get_timeout: Some(self.get_timeout),
            put_timeout: Some(self.put_timeout),
            upload_limit: rate(self.upload_limit),
            download_limit: rate(self.download_limit),
            ..environment
        })
    }

    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        // Without `..`, so that a new option is not forgotten here.
        let Self {
            storage: _,
            bucket: _,
            storage_class: _,
            tag: _,
            get_timeout,
            put_timeout,
            io_retries: _,
            max_uploads,
            max_downloads,
            max_stage_write: _,
            max_deletes,
            upload_limit: _,
            download_limit: _,
            verify_reads: _,
            check_storage: _,
        } = self;
        for (name, value) in [("--max-uploads", max_uploads), ("--max-downloads", max_downloads)] {
            if *value == 0 {
                bail!("{name} must be at least 1");
            }
        }
        for (name, timeout) in [("--get-timeout", get_timeout), ("--put-timeout", put_timeout)] {
            if timeout.is_zero() {
                bail!("{name} must not be 0");
            }
        }
        if *max_deletes == 0 {
            warnings.add("--max-deletes 0: no objects are deleted".to_owned());
        }
        Ok(())
    }
}

/// Returns the limit of this client; 0 means that the volume's own applies.
fn rate(mbps: Option<i64>) -> Option<u64> {
    mbps.and_then(|mbps| u64::try_from(mbps).ok()).filter(|mbps| *mbps > 0)
}

fn parse_verify(text: &str) -> anyhow::Result<Verify> {
    Ok(text.parse()?)
}
