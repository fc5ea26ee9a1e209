//! Targets: the places where pods see a volume. Bind mounts, made and taken away by mount(2).
//!
//! Never looks at a target itself: it may be a mount that does not answer. The kernel's table is the
//! truth.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::error::{Error, Result};
use crate::fuse::mounted_at;

/// Mounts stacked on one target that are taken away at most; more were not made by us.
const STACKED: usize = 16;

/// The device that is mounted there, on top.
pub fn device_at(target: &Path) -> Option<String> {
    mounted_at(target).map(|mounted| mounted.device)
}

/// Makes the target, in a directory that exists, and shows the mount at `point` there.
pub fn bind(point: &Path, target: &Path, read_only: bool) -> Result<()> {
    match DirBuilder::new().mode(0o750).create(target) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(fault(target, &error));
        }
        _ => {}
    }
    let none: Option<&str> = None;
    mount(Some(point), target, none, MsFlags::MS_BIND, none)
        .map_err(|errno| errno_of(target, errno))?;
    if !read_only {
        return Ok(());
    }
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, target, none, flags, none).map_err(|errno| {
        // Better none than one that can be written to.
        let _ = umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        errno_of(target, errno)
    })
}

/// Takes away whatever is mounted at the target. What is open there stays usable until it is closed.
pub fn detach(target: &Path) -> Result<()> {
    for _ in 0..STACKED {
        if mounted_at(target).is_none() {
            return Ok(());
        }
        match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(errno) => return Err(errno_of(target, errno)),
        }
    }
    Err(Error::Refused(format!("{}: more is mounted there than this driver did", target.display())))
}

/// Takes the target away, mount and directory. One that is gone is fine; what somebody has put below it
/// is not removed.
pub fn unbind(target: &Path) -> Result<()> {
    detach(target)?;
    match fs::remove_dir(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(fault(target, &error)),
        Ok(()) => Ok(()),
    }
}

fn fault(target: &Path, error: &io::Error) -> Error {
    Error::Unreachable { place: target.display().to_string(), cause: error.to_string() }
}

fn errno_of(target: &Path, errno: Errno) -> Error {
    Error::Unreachable { place: target.display().to_string(), cause: errno.desc().to_owned() }
}
