//! `rmr`: has a mount remove whole directory trees.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::cli::progress::Activity;
use crate::meta::Ino;
use crate::vfs::control_protocol::{RemoveRequest, opcode};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Remove a directory with everything below it:
    jfs-mount rmr /mnt/jfs/dir
  Remove it for good, past the trash:
    jfs-mount rmr /mnt/jfs/dir --skip-trash")]
pub struct Rmr {
    /// What to remove, with everything below
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Delete instead of moving to the trash; only for root
    #[arg(long)]
    skip_trash: bool,
    /// Directories emptied at once
    #[arg(short = 'p', long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u8).range(1..))]
    threads: u8,
}

impl Rmr {
    pub async fn run(self) -> anyhow::Result<()> {
        if self.skip_trash && !nix::unistd::geteuid().is_root() {
            bail!("--skip-trash is only for root");
        }
        for path in &self.paths {
            let count = self.remove(path).await?;
            println!("{}: removed {count} entries", path.display());
        }
        Ok(())
    }

    async fn remove(&self, path: &Path) -> anyhow::Result<u64> {
        let (dir, name) = split_path(path)?;
        let found = dir.metadata().with_context(|| format!("cannot stat {}", dir.display()))?;
        let mut client = ControlClient::open(&dir)?;
        let mut activity = Activity::new();
        let mut count = 0;
        let body = body(found.ino(), name, self.skip_trash, self.threads)?;
        let reply = client.request(opcode::REMOVE, &body, |removed, _| {
            count = removed;
            activity.show(|| format!("{}: {removed} entries removed so far", path.display()));
        });
        let reply = reply.await;
        activity.finish();
        match reply.with_context(|| format!("cannot remove {}", path.display()))? {
            ReplyEnd::Done => Ok(count),
            ReplyEnd::Failed(errno) => {
                let removed = if count > 0 {
                    format!(" after {count} entries were removed")
                } else {
                    String::new()
                };
                bail!("cannot remove {}: {}{removed}", path.display(), describe_errno(errno));
            }
            ReplyEnd::Data(_) => bail!("unexpected reply of the mount"),
        }
    }
}

/// Splits a path into the directory and the name in it.
fn split_path(path: &Path) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let whole = std::path::absolute(path)
        .with_context(|| format!("cannot make {} absolute", path.display()))?;
    match (whole.parent(), whole.file_name().map(OsStr::as_bytes)) {
        (Some(dir), Some(name)) => Ok((dir.to_owned(), name.to_owned())),
        _ => bail!("{} does not name an entry of a directory", path.display()),
    }
}

fn body(dir: u64, name: Vec<u8>, skip_trash: bool, threads: u8) -> anyhow::Result<Vec<u8>> {
    let request = RemoveRequest { dir: Ino(dir), name: name.into(), skip_trash, threads };
    request.encode().context("the name is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_directory_and_name() {
        let name = |path: &str| split_path(Path::new(path)).ok();
        assert_eq!(name("/mnt/a/"), Some(("/mnt".into(), b"a".to_vec())));
        assert_eq!(name("/mnt/a/."), Some(("/mnt".into(), b"a".to_vec())));
        assert_eq!(name("/mnt/a/.."), None);
        assert_eq!(name("/"), None);
    }

    #[test]
    fn a_request_has_exactly_these_bytes() {
        let body = body(2, b"abc".to_vec(), true, 50).unwrap();
        assert_eq!(body, b"\0\0\0\0\0\0\0\x02\x03abc\x01\x32");
    }
}
