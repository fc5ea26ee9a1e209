//! `umount`: takes a mount down, whoever serves it and whether or not it still answers.

mod busy;
mod staged;
mod told;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tracing::info;

use super::exit::Exit;
use super::progress::Progress;
use crate::fuse::{self, MountEntry, Unmount};
use crate::options::sizes::Bytes;
use busy::users;
use staged::Staged;
use told::Told;

/// For the process to store what it holds after the mount is gone.
const ENDING: Duration = Duration::from_mins(5);
/// A file that was closed a moment ago may still be on its way.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// Users that are named.
const NAMED: usize = 10;

#[derive(Debug, Args)]
pub struct Umount {
    /// The directory where the volume is mounted
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
    /// Also if it is in use, or does not answer: it is out of sight at once
    #[arg(short, long)]
    force: bool,
    /// Wait until everything that was written with --writeback is uploaded
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
        let told = told::ask(point);
        if self.flush {
            let told = told.context("--flush")?;
            self.flush(point, &told)?;
        } else {
            self.take_down(point, told.is_ok())?;
            if let Ok(told) = told
                && !self.force
            {
                told.wait_for_end(ENDING);
            }
        }
        info!("unmounted {}", point.display());
        Ok(())
    }

    /// A process of ours uploads what is staged after the mount is gone, so that nothing can come
    /// after it. With the Go client's, all that can be done is to wait first.
    fn flush(&self, point: &Path, told: &Told) -> anyhow::Result<()> {
        let staged = Staged::new(told);
        let asked = told.ask_to_flush();
        if !asked {
            staged.wait(&Progress::new(), || true)?;
        }
        self.take_down(point, true)?;
        if asked {
            staged.wait(&Progress::new(), || told.is_running())?;
        }
        told.wait_for_end(ENDING);
        match staged.bytes() {
            0 => Ok(()),
            left => Err(Exit::Unflushed.with(anyhow!(
                "unmounted, but {} are still staged: the next mount uploads them",
                Bytes(left)
            ))),
        }
    }

    /// What is mounted there. Looks at the kernel's table first: the place may not answer.
    fn find(&self) -> anyhow::Result<MountEntry> {
        let shown = self.point.display();
        let there = fuse::mounted_at(&located(&self.point)?).or_else(|| {
            let resolved = std::fs::canonicalize(&self.point).ok()?;
            fuse::mounted_at(&resolved)
        });
        match there {
            Some(there) if there.kind == "fuse.juicefs" => Ok(there),
            Some(there) => {
                bail!("{shown}: that is {} ({}), not a volume", there.source, there.kind)
            }
            None => bail!("{shown}: nothing is mounted there"),
        }
    }

    fn take_down(&self, point: &Path, answers: bool) -> anyhow::Result<()> {
        if self.force {
            // One that does not answer is cut off, so that whoever waits for it is freed; any other
            // goes when its last user does.
            let how = if answers { Unmount::Lazy } else { Unmount::Force };
            return Ok(fuse::unmount(point, how)?);
        }
        let mut refused = None;
        for _ in 0..TRIES {
            match fuse::unmount(point, Unmount::Plain) {
                Ok(()) => return Ok(()),
                Err(error) => refused = Some(error),
            }
            if users(point, 1).is_empty() {
                std::thread::sleep(PAUSE);
            } else {
                break;
            }
        }
        let users = users(point, NAMED);
        let refused = refused.map_or_else(|| anyhow!("refused"), anyhow::Error::from);
        if users.is_empty() {
            return Err(refused).context("if nothing else helps: jfs-mount umount --force");
        }
        let shown = point.display();
        Err(Exit::Busy.with(anyhow!(
            "{shown}: in use by\n  {}\nend these, or unmount once they are done: jfs-mount umount --force {shown}",
            users.join("\n  ")
        )))
    }
}

/// As the kernel's table names it, without looking at the place itself.
fn located(point: &Path) -> anyhow::Result<PathBuf> {
    let full = std::path::absolute(point)?;
    match (full.parent(), full.file_name()) {
        (Some(dir), Some(name)) => {
            let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
            Ok(dir.join(name))
        }
        _ => Ok(full),
    }
}
