//! Targets: the paths where pods see a volume. They are bind mounts.
//!
//! A target lies below the kubelet's directory and is opened from there without following symbolic
//! links; other paths are refused. This module never accesses the target itself, which may be a
//! mount that does not respond: it relies on the kernel's mount table.

mod replace;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, umount2};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::error::{Error, Result};
use crate::fuse::mounted_at;

/// How many stacked mounts are removed from one target. This driver never stacks more.
const MAX_STACKED: usize = 16;

/// The directory that contains all targets.
#[derive(Debug, Clone)]
pub struct TargetRoot(PathBuf);

/// A target's parent directory, opened, and its name in there.
pub(super) struct OpenTarget {
    parent: OwnedFd,
    name: OsString,
}

impl OpenTarget {
    /// Opens the topmost mount of the target, or the directory itself.
    pub fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.parent, &self.name, flags, Mode::empty())
    }

    /// Unmounts the topmost mount, lazily.
    pub fn unmount(&self) -> nix::Result<()> {
        let place = fd_path(&self.parent).join(&self.name);
        umount2(&place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
    }
}

impl TargetRoot {
    pub fn new(dir: &Path) -> Self {
        // Without trailing slashes, as targets are compared with it.
        Self(dir.components().collect())
    }

    /// Refuses a path that cannot be a target.
    pub fn check(&self, target: &Path) -> Result<()> {
        self.below(target).map(drop)
    }

    /// Creates the target in an existing directory and bind-mounts `point` on top of what is there.
    pub fn bind(&self, point: &Path, target: &Path, read_only: bool) -> Result<()> {
        let target_dir = self.open(target)?;
        match mkdirat(&target_dir.parent, &target_dir.name, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(fault(target, error)),
        }
        let place = target_dir.open().map_err(|error| fault(target, error))?;
        // Set before the mount is attached: later changes stay in this mount namespace. And
        // private: what is mounted on one target must not propagate to the other targets of the
        // volume.
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, point, clone).map_err(|error| fault(point, error))?;
        let flags = if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
        set_private(tree.as_fd(), flags).map_err(|errno| fault(target, errno))?;
        let empty =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&tree, "", &place, "", empty).map_err(|error| fault(target, error))
    }

    /// Unmounts everything at the target, lazily: open files stay usable until they are closed.
    pub fn detach(&self, target: &Path) -> Result<()> {
        for _ in 0..MAX_STACKED {
            if mounted_at(target).is_none() {
                return Ok(());
            }
            match self.open(target)?.unmount() {
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(errno) => return Err(fault(target, errno)),
            }
        }
        let place = target.display();
        Err(Error::Refused(format!(
            "{place}: more mounts are stacked there than this driver makes"
        )))
    }

    /// Removes the target, mount and directory. Succeeds if it is gone. Never removes files below
    /// it.
    pub fn unbind(&self, target: &Path) -> Result<()> {
        self.check(target)?;
        self.detach(target)?;
        let removed = match self.open(target) {
            Ok(OpenTarget { parent, name }) => unlinkat(parent, name, AtFlags::REMOVEDIR),
            Err(Error::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        match removed {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(fault(target, error)),
        }
    }

    /// Returns the part of a target's path below the root.
    fn below<'a>(&self, target: &'a Path) -> Result<&'a Path> {
        let refused = || {
            Error::bad_input(format!(
                "target path {} is not below the kubelet's directory {}: check --kubelet-dir",
                target.display(),
                self.0.display()
            ))
        };
        let below = target.strip_prefix(&self.0).map_err(|_| refused())?;
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if plain && below.file_name().is_some() { Ok(below) } else { Err(refused()) }
    }

    pub(super) fn open(&self, target: &Path) -> Result<OpenTarget> {
        let below = self.below(target)?;
        let (Some(name), Some(dir)) = (below.file_name(), below.parent()) else {
            return Err(Error::NotFound);
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &self.0, flags, Mode::empty()).and_then(|root| {
            let dir = if dir.as_os_str().is_empty() { OsStr::new(".") } else { dir.as_os_str() };
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            openat2(root, dir, flags, Mode::empty(), how)
        });
        match opened {
            Ok(parent) => Ok(OpenTarget { parent, name: name.to_owned() }),
            Err(rustix::io::Errno::NOENT) => Err(Error::NotFound),
            Err(rustix::io::Errno::LOOP) => Err(Error::bad_input(format!(
                "target path {} contains a symbolic link",
                target.display()
            ))),
            Err(error) => Err(fault(target, error)),
        }
    }
}

/// Returns the device of the topmost mount at a target.
pub fn device_at(target: &Path) -> Option<String> {
    mounted_at(target).map(|mounted| mounted.device)
}

/// Returns a path to an open directory, valid whatever happens to its name.
fn fd_path(dir: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", dir.as_raw_fd()).into()
}

/// Sets flags on a mount and makes it private: mounts propagate neither to nor from it.
#[allow(unsafe_code, reason = "mount_setattr(2) has no safe form")]
pub(super) fn set_private(tree: BorrowedFd<'_>, flags: u64) -> Result<(), Errno> {
    let attributes = libc::mount_attr {
        attr_set: flags,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: the descriptor is open, the path is a static empty C string, and the kernel reads as
    // many bytes of the attributes as the last argument gives, which is their size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(done).map(drop)
}

pub(super) fn fault(target: &Path, error: impl Into<io::Error>) -> Error {
    Error::Unreachable { place: target.display().to_string(), cause: error.into().to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_target_lies_below_the_root() {
        let root = TargetRoot::new(Path::new("/var/lib/kubelet/"));
        root.check(Path::new("/var/lib/kubelet/pods/a")).unwrap();
        for path in
            ["/", "/etc", "/var/lib/kubelet", "/var/lib/kubelet2/a", "/var/lib/kubelet/../x"]
        {
            let refused = root.check(Path::new(path)).unwrap_err().to_string();
            assert!(refused.contains("--kubelet-dir"), "{path}: {refused}");
        }
    }

    #[test]
    fn a_target_is_not_reached_through_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("kubelet/pods")).unwrap();
        fs::create_dir_all(dir.path().join("host/victim")).unwrap();
        symlink(dir.path().join("host"), dir.path().join("kubelet/pods/link")).unwrap();
        let root = TargetRoot::new(&dir.path().join("kubelet"));
        let target = dir.path().join("kubelet/pods/link/victim");
        let refused = root.unbind(&target).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        assert!(root.bind(dir.path(), &target, false).is_err());
        assert!(dir.path().join("host/victim").is_dir(), "the linked directory still exists");
        // A target that is itself a link.
        symlink(dir.path().join("host/victim"), dir.path().join("kubelet/pods/end")).unwrap();
        assert!(root.bind(dir.path(), &dir.path().join("kubelet/pods/end"), false).is_err());
        assert!(root.unbind(&dir.path().join("kubelet/pods/end")).is_err());
    }
}
