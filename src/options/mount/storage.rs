//! Options about the store of objects, beside what the volume's setting says.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::warnings::Warnings;
use crate::chunk::Verify;
use crate::meta::record::Setting;
use crate::options::durations::parse_duration;
use crate::options::sizes::parse_mbps;
use crate::options::storage::parse_tag;
use crate::volume::storage::Overrides;

#[derive(Debug, Args)]
#[command(next_help_heading = "Data storage")]
pub struct StorageArgs {
    /// Type of the storage, in place of the volume's own
    #[arg(long, value_name = "TYPE")]
    pub storage: Option<String>,
    /// Address of the bucket, in place of the volume's own
    #[arg(long, value_name = "ADDRESS")]
    pub bucket: Option<String>,
    /// Storage class of what this client writes
    #[arg(long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// Tag of what this client uploads, key=value
    #[arg(long, value_parser = parse_tag)]
    pub tag: Option<String>,
    /// How long a download of an object may take
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub get_timeout: Duration,
    /// How long an upload of an object may take
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub put_timeout: Duration,
    /// How often a failed request is tried again at least, for the sum of as many squares of seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub io_retries: u32,
    /// Uploads at the same time
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub max_uploads: usize,
    /// Downloads at the same time
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_downloads: usize,
    /// Blocks being staged at the same time with --writeback; others are uploaded directly
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_stage_write: usize,
    /// Slices being deleted at the same time; 0 deletes no objects
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub max_deletes: usize,
    /// Upload limit in Mbps [default: the volume's own]
    #[arg(long, value_name = "RATE", value_parser = parse_mbps)]
    pub upload_limit: Option<i64>,
    /// Download limit in Mbps [default: the volume's own]
    #[arg(long, value_name = "RATE", value_parser = parse_mbps)]
    pub download_limit: Option<i64>,
    /// Which blocks are read whole, to compare them with their checksum, though only a part is wanted:
    /// all, cheap (up to 1 MiB) or none
    #[arg(long, value_name = "WHICH", default_value = "cheap", value_parser = parse_verify)]
    pub verify_reads: Verify,
    /// Test the storage before mounting
    #[arg(long)]
    pub check_storage: bool,
}

impl StorageArgs {
    /// What goes before the setting; `environment` gives what no option says.
    pub fn overrides(
        &self,
        setting: &Setting,
        environment: Overrides,
    ) -> anyhow::Result<Overrides> {
        let storage = self.storage.as_ref().map(|storage| storage.to_lowercase());
        let is_file = storage.as_deref().unwrap_or(&setting.storage) == "file";
        let bucket = match &self.bucket {
            Some(dir) if is_file => Some(absolute(dir)?),
            said => said.clone(),
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
        for (name, value) in
            [("--max-uploads", self.max_uploads), ("--max-downloads", self.max_downloads)]
        {
            if value == 0 {
                bail!("{name} 0: nothing could be moved");
            }
        }
        for (name, timeout) in
            [("--get-timeout", self.get_timeout), ("--put-timeout", self.put_timeout)]
        {
            if timeout.is_zero() {
                bail!("{name} 0: no request could succeed");
            }
        }
        if self.max_deletes == 0 {
            warnings.say("--max-deletes 0: no objects are deleted".to_owned());
        }
        Ok(())
    }
}

/// No limit of this client's own if it is 0.
fn rate(mbps: Option<i64>) -> Option<u64> {
    mbps.and_then(|mbps| u64::try_from(mbps).ok()).filter(|mbps| *mbps > 0)
}

fn parse_verify(text: &str) -> anyhow::Result<Verify> {
    Ok(text.parse()?)
}

fn absolute(dir: &str) -> anyhow::Result<String> {
    let path = std::path::absolute(Path::new(dir)).with_context(|| format!("--bucket {dir:?}"))?;
    let mut text =
        path.to_str().with_context(|| format!("--bucket {dir:?} is not UTF-8"))?.to_owned();
    if !text.ends_with('/') {
        text.push('/');
    }
    Ok(text)
}
