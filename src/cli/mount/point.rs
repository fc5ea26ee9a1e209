//! The place where the volume is to be mounted.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;
use tracing::info;

use crate::fuse::{self, Unmount};

/// What answers later than this does not answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Makes the directory if it is missing, and takes down what is left there of a mount whose process
/// is gone. Blocks.
pub fn prepare(point: &Path) -> anyhow::Result<()> {
    let shown = point.display();
    if point.parent().is_none() {
        bail!("{shown}: the root directory is no mount point");
    }
    let there = fuse::mounted_at(point).filter(fuse::MountEntry::is_fuse);
    match look(point)? {
        Err(error) if there.is_some() && is_dead(&error) => {
            info!("taking down what is left of an earlier mount at {shown}");
            fuse::unmount(point, Unmount::Lazy)?;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::create_dir_all(point)
            .with_context(|| format!("{shown}: the mount point cannot be created")),
        // If it is wrong, mounting says so better.
        _ => Ok(()),
    }
}

/// Whether the place can be looked at; a mount may be there that never answers. Its attributes may
/// be known to the kernel for a while after it has died, so it is opened.
fn look(point: &Path) -> anyhow::Result<io::Result<()>> {
    let (tell, told) = mpsc::channel();
    let path = point.to_owned();
    thread::Builder::new()
        .name("look".to_owned())
        .spawn(move || drop(tell.send(std::fs::read_dir(path).map(drop))))?;
    told.recv_timeout(PATIENCE).ok().with_context(|| {
        let shown = point.display();
        format!(
            "{shown}: what is mounted there does not answer; try: jfs-mount umount --force {shown}"
        )
    })
}

fn is_dead(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EIO))
}
