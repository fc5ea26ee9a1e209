//! Preparing the mount point.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;
use tracing::info;

use crate::fuse::{self, Unmount};

/// How long to wait for whatever is mounted there to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Creates the directory if it is missing, and unmounts a dead mount whose process is gone. Blocks.
pub fn prepare(point: &Path) -> anyhow::Result<()> {
    let shown = point.display();
    if point.parent().is_none() {
        bail!("{shown}: the root directory cannot be a mount point");
    }
    let there = fuse::mounted_at(point).filter(fuse::MountEntry::is_fuse);
    match open_dir(point)? {
        Err(error) if there.is_some() && is_dead(&error) => {
            info!("unmounting a dead mount at {shown}");
            fuse::unmount(point, Unmount::Lazy)?;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::create_dir_all(point)
            .with_context(|| format!("{shown}: the mount point cannot be created")),
        // If anything else is wrong, the mount call reports it better.
        _ => Ok(()),
    }
}

/// Opens the directory, with a timeout: a mount there may never respond. Opened rather than stat'ed,
/// since the kernel may have the attributes of a dead mount cached.
fn open_dir(point: &Path) -> anyhow::Result<io::Result<()>> {
    let (sender, receiver) = mpsc::channel();
    let path = point.to_owned();
    thread::Builder::new()
        .name("open-mount-point".to_owned())
        .spawn(move || drop(sender.send(std::fs::read_dir(path).map(drop))))?;
    receiver.recv_timeout(RESPONSE_TIMEOUT).ok().with_context(|| {
        let shown = point.display();
        format!(
            "{shown}: what is mounted there does not respond; try: jfs-mount umount --force {shown}"
        )
    })
}

fn is_dead(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EIO))
}
