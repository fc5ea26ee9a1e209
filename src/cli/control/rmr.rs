//! `rmr`: has a mount remove whole directory trees.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::meta::Ino;
use crate::vfs::control_protocol::{RemoveRequest, opcode};

/// Between two lines of progress, if stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
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
        let mut progress = RemovalProgress::new(path);
        let body = body(found.ino(), name, self.skip_trash, self.threads)?;
        let reply = client.request(opcode::REMOVE, &body, |count, _| progress.update(count)).await;
        let count = progress.finish();
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

/// Progress: a bar on a terminal, otherwise a line every ten seconds.
struct RemovalProgress {
    bar: ProgressBar,
    path: String,
    count: u64,
    printed: Instant,
}

impl RemovalProgress {
    fn new(path: &Path) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template(
            "{spinner} {prefix}: {human_pos} entries removed, {per_sec}, {elapsed}",
        ) {
            bar.set_style(style);
        }
        bar.set_prefix(path.display().to_string());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, path: path.display().to_string(), count: 0, printed: Instant::now() }
    }

    fn update(&mut self, count: u64) {
        self.count = count;
        self.bar.set_position(count);
        if self.bar.is_hidden() && self.printed.elapsed() >= LINE_INTERVAL {
            eprintln!("{}: {count} entries removed so far", self.path);
            self.printed = Instant::now();
        }
    }

    fn finish(self) -> u64 {
        self.bar.finish_and_clear();
        self.count
    }
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
