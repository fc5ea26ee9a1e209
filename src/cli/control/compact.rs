//! `compact`: merges the slices of files, by the mount itself.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tracing::error;

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::cli::progress::Activity;
use crate::vfs::control_protocol::opcode;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  Merge the slices of every file in a directory:
    jfs-mount compact /mnt/jfs/data")]
pub struct Compact {
    /// Files and directories of a mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Chunks compacted at once
    #[arg(short = 'p', long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

impl Compact {
    /// Goes on with the next path if one fails.
    pub async fn run(self) -> anyhow::Result<()> {
        let mut failures = 0;
        for path in &self.paths {
            match self.compact(path).await {
                Ok(chunks) => println!("{}: compacted {chunks} chunks", path.display()),
                Err(cause) => {
                    error!("{cause:#}");
                    failures += 1;
                }
            }
        }
        if failures > 0 {
            bail!("{failures} of {} paths failed", self.paths.len());
        }
        Ok(())
    }

    async fn compact(&self, path: &Path) -> anyhow::Result<u64> {
        let found =
            path.symlink_metadata().with_context(|| format!("cannot stat {}", path.display()))?;
        let whole = std::path::absolute(path)
            .with_context(|| format!("cannot make {} absolute", path.display()))?;
        let mut client = ControlClient::open(&whole)?;
        let body = [&found.ino().to_be_bytes()[..], &self.threads.to_be_bytes()].concat();
        let mut activity = Activity::new();
        let mut chunks = 0;
        let reply = client.request(opcode::COMPACT, &body, |total, done| {
            chunks = done;
            activity.show(|| format!("{}: {done} of {total} chunks", path.display()));
        });
        let reply = reply.await;
        activity.finish();
        let failed = || format!("cannot compact {}", path.display());
        match reply.with_context(failed)? {
            ReplyEnd::Done => Ok(chunks),
            ReplyEnd::Failed(errno) => bail!("{}: {}", failed(), describe_errno(errno)),
            ReplyEnd::Data(_) => bail!("{}: unexpected reply of the mount", failed()),
        }
    }
}
