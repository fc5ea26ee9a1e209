//! `umount`: unmounts a volume, served by this or the Go client, whether or not the mount responds.

mod mount_process;
mod mount_users;
mod staged_blocks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tracing::info;

use super::exit::Exit;
use super::progress::Progress;
use crate::fuse::{self, MountEntry, Unmount};
use crate::options::sizes::Bytes;
use mount_process::MountProcess;
use mount_users::mount_users;
use staged_blocks::StagedBlocks;

/// How long the process may take to store buffered data after the unmount.
const EXIT_TIMEOUT: Duration = Duration::from_mins(5);
/// Attempts while the mount is busy without a visible user: the kernel may still be releasing a file
/// that was just closed.
const ATTEMPTS: u32 = 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Most processes named in the error message.
const NAMED_USERS: usize = 10;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Unmount, when all data is stored:
    jfs-mount umount /mnt/jfs
  Upload first what --writeback left on this host:
    jfs-mount umount --flush /mnt/jfs")]
pub struct Umount {
    /// The directory where the volume is mounted
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
    /// Unmount even if it is in use or does not respond; the mount point is free at once
    #[arg(short, long)]
    force: bool,
    /// Wait until everything written with --writeback is uploaded
    #[arg(long)]
    flush: bool,
}

impl Umount {
    pub async fn run(self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.unmount()).await?
    }

    fn unmount(&self) -> anyhow::Result<()> {
        let there = self.find()?;
        let point = there.point.as_path();
        let process = MountProcess::of(point);
        if self.flush {
            let process = process.context("--flush")?;
            self.flush(point, &process)?;
        } else {
            self.take_down(point, process.is_ok())?;
            if let Ok(process) = process
                && !self.force
            {
                process.wait_for_exit(EXIT_TIMEOUT);
            }
        }
        info!("unmounted {}", point.display());
        Ok(())
    }

    /// A process of this client uploads the staged blocks after the unmount, when nothing can be
    /// written any more. With the Go client, the only way is to wait before the unmount.
    fn flush(&self, point: &Path, process: &MountProcess) -> anyhow::Result<()> {
        let staged = StagedBlocks::new(process);
        let asked = process.ask_to_flush();
        if !asked {
            staged.wait(&Progress::new(), || true)?;
        }
        self.take_down(point, true)?;
        if asked {
            staged.wait(&Progress::new(), || process.is_running())?;
        }
        process.wait_for_exit(EXIT_TIMEOUT);
        match staged.bytes() {
            0 => Ok(()),
            left => Err(Exit::Unflushed.with(anyhow!(
                "unmounted, but {} are still staged; the next mount uploads them",
                Bytes(left)
            ))),
        }
    }

    /// Finds what is mounted there, in the kernel's mount table first: a lookup on the mount may hang.
    fn find(&self) -> anyhow::Result<MountEntry> {
        let shown = self.point.display();
        let there = fuse::mounted_at(&resolve_parent(&self.point)?).or_else(|| {
            let resolved = std::fs::canonicalize(&self.point).ok()?;
            fuse::mounted_at(&resolved)
        });
        match there {
            Some(there) if there.kind == "fuse.juicefs" => Ok(there),
            Some(there) => {
                bail!("{shown}: {} ({}) is mounted there, not a volume", there.source, there.kind)
            }
            None => bail!("{shown}: nothing is mounted there"),
        }
    }

    fn take_down(&self, point: &Path, responds: bool) -> anyhow::Result<()> {
        if self.force {
            // Force fails all pending requests, which frees processes that wait for a dead mount; a
            // lazy unmount completes when the last user is done.
            let how = if responds { Unmount::Lazy } else { Unmount::Force };
            return Ok(fuse::unmount(point, how)?);
        }
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            match fuse::unmount(point, Unmount::Plain) {
                Ok(()) => return Ok(()),
                Err(error) => refused = Some(error),
            }
            if mount_users(point, 1).is_empty() {
                std::thread::sleep(RETRY_INTERVAL);
            } else {
                break;
            }
        }
        let users = mount_users(point, NAMED_USERS);
        let refused = refused.map_or_else(|| anyhow!("refused"), anyhow::Error::from);
        if users.is_empty() {
            return Err(refused).context("if nothing else helps, try: jfs-mount umount --force");
        }
        let shown = point.display();
        Err(Exit::Busy.with(anyhow!(
            "{shown}: in use by\n  {}\nend these, or unmount once they are done: jfs-mount umount --force {shown}",
            users.join("\n  ")
        )))
    }
}

/// Resolves the mount point as the kernel's mount table names it, without a lookup on the mount.
fn resolve_parent(point: &Path) -> anyhow::Result<PathBuf> {
    let full = std::path::absolute(point)?;
    match (full.parent(), full.file_name()) {
        (Some(dir), Some(name)) => {
            let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
            Ok(dir.join(name))
        }
        _ => Ok(full),
    }
}
