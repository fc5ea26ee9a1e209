//! Error messages about mounts, with what to do.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use nix::errno::Errno;

use super::mount_table::MountEntry;
use crate::error::Error;

pub fn device(error: &io::Error) -> Error {
    Error::Refused(match errno(error) {
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => {
            "/dev/fuse does not exist: load the module (modprobe fuse), or give the container the device"
                .to_owned()
        }
        Some(Errno::EACCES | Errno::EPERM) => {
            "/dev/fuse: permission denied; run as root, or give the container the device".to_owned()
        }
        _ => format!("cannot open /dev/fuse: {error}"),
    })
}

/// The mount point cannot be inspected.
pub fn point(point: &Path, error: &io::Error) -> Error {
    let shown = point.display();
    Error::BadInput(match errno(error) {
        Some(Errno::ENOENT) => format!("{shown}: the mount point does not exist; create it first"),
        Some(Errno::ENOTDIR) => format!("{shown}: the mount point is not a directory"),
        Some(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EIO) => format!(
            "{shown}: a dead mount is in the method ({error}); remove it with: umount -l {shown}"
        ),
        _ => format!("{shown}: {error}"),
    })
}

pub fn not_a_directory(point: &Path) -> Error {
    Error::BadInput(format!("{}: the mount point is not a directory", point.display()))
}

/// A FUSE file system is already mounted there.
pub fn occupied(point: &Path, there: &MountEntry) -> Error {
    let (shown, kind, source) = (point.display(), &there.kind, &there.source);
    Error::BadInput(format!(
        "{shown}: {source} ({kind}) is already mounted; remove it with: umount {shown} (umount -l if \
         it is busy or does not respond)"
    ))
}

pub fn mount(point: &Path, errno: Errno, options: &OsStr) -> Error {
    let shown = point.display();
    Error::Refused(match errno {
        Errno::EPERM | Errno::EACCES => {
            format!("{shown}: mounting is not permitted; it needs root with CAP_SYS_ADMIN")
        }
        Errno::ENODEV => format!("{shown}: the kernel does not support FUSE (modprobe fuse)"),
        Errno::EBUSY => format!("{shown}: the mount point is busy"),
        Errno::EINVAL => {
            let options = options.to_string_lossy();
            format!("{shown}: the kernel rejects the mount options {options}")
        }
        _ => format!("{shown}: cannot mount: {errno}"),
    })
}

pub fn unmount(point: &Path, errno: Errno) -> Error {
    let shown = point.display();
    Error::Refused(match errno {
        Errno::EBUSY => format!("{shown}: in use; find the processes with: fuser -vm {shown}"),
        Errno::EPERM => format!("{shown}: unmounting is not permitted; it needs root"),
        _ => format!("{shown}: cannot unmount: {errno}"),
    })
}

pub fn no_program(program: &str, error: &io::Error) -> Error {
    Error::Refused(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("mounting without root needs {program}; install the package fuse3")
        }
        _ => format!("{program}: {error}"),
    })
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}
