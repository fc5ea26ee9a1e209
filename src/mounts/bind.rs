//! Targets: the places where pods see a volume. Bind mounts, made and taken away by the kernel's mount
//! calls.
//!
//! A target lies below the kubelet's directory, and is reached from there without following a symbolic
//! link: whoever names another place is refused. Never looks at a target itself: it may be a mount that
//! does not answer. The kernel's table is the truth.

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

/// Mounts stacked on one target that are taken away at most; more were not made by us.
const STACKED: usize = 16;

/// The directory that all targets lie below.
#[derive(Debug, Clone)]
pub struct TargetRoot(PathBuf);

/// Where a target lies: the directory above it, open, and its name there.
pub(super) struct Spot {
    parent: OwnedFd,
    name: OsString,
}

impl Spot {
    /// What is on top there: a mount, or the directory itself.
    pub fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.parent, &self.name, flags, Mode::empty())
    }

    /// Takes away what is mounted on top there, now or when nobody uses it any more.
    pub fn unmount(&self) -> nix::Result<()> {
        let place = through(&self.parent).join(&self.name);
        umount2(&place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
    }
}

impl TargetRoot {
    pub fn new(dir: &Path) -> Self {
        // As targets are compared with it: without slashes at the end.
        Self(dir.components().collect())
    }

    /// Refuses a path that cannot be a target.
    pub fn check(&self, target: &Path) -> Result<()> {
        self.below(target).map(drop)
    }

    /// Makes the target, in a directory that exists, and shows the mount at `point` there, on top of what
    /// is there.
    pub fn bind(&self, point: &Path, target: &Path, read_only: bool) -> Result<()> {
        let spot = self.open(target)?;
        match mkdirat(&spot.parent, &spot.name, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(fault(target, error)),
        }
        let place = spot.open().map_err(|error| fault(target, error))?;
        // Complete before anybody sees it: a flag that is changed later stays in this mount namespace. And
        // of its own: what is mounted on one target must not appear at all others of the volume.
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, point, clone).map_err(|error| fault(point, error))?;
        let flags = if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
        set_private(tree.as_fd(), flags).map_err(|errno| fault(target, errno))?;
        let empty =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&tree, "", &place, "", empty).map_err(|error| fault(target, error))
    }

    /// Takes away whatever is mounted at the target. What is open there stays usable until it is closed.
    pub fn detach(&self, target: &Path) -> Result<()> {
        for _ in 0..STACKED {
            if mounted_at(target).is_none() {
                return Ok(());
            }
            match self.open(target)?.unmount() {
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(errno) => return Err(fault(target, errno)),
            }
        }
        let place = target.display();
        Err(Error::Refused(format!("{place}: more is mounted there than this driver did")))
    }

    /// Takes the target away, mount and directory. One that is gone is fine; what somebody has put below
    /// it is not removed.
    pub fn unbind(&self, target: &Path) -> Result<()> {
        self.check(target)?;
        self.detach(target)?;
        let removed = match self.open(target) {
            Ok(Spot { parent, name }) => unlinkat(parent, name, AtFlags::REMOVEDIR),
            Err(Error::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        match removed {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(fault(target, error)),
        }
    }

    /// The part of a target's path below the directory of all.
    fn below<'a>(&self, target: &'a Path) -> Result<&'a Path> {
        let refused = || {
            Error::bad_input(format!(
                "target path {} is not below the kubelet's directory {}: --kubelet-dir says where that is",
                target.display(),
                self.0.display()
            ))
        };
        let below = target.strip_prefix(&self.0).map_err(|_| refused())?;
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if plain && below.file_name().is_some() { Ok(below) } else { Err(refused()) }
    }

    pub(super) fn open(&self, target: &Path) -> Result<Spot> {
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
            Ok(parent) => Ok(Spot { parent, name: name.to_owned() }),
            Err(rustix::io::Errno::NOENT) => Err(Error::NotFound),
            Err(rustix::io::Errno::LOOP) => Err(Error::bad_input(format!(
                "target path {} goes through a symbolic link",
                target.display()
            ))),
            Err(error) => Err(fault(target, error)),
        }
    }
}

/// The device that is mounted there, on top.
pub fn device_at(target: &Path) -> Option<String> {
    mounted_at(target).map(|mounted| mounted.device)
}

/// A path that leads to an open directory, whatever has become of its name.
fn through(dir: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", dir.as_raw_fd()).into()
}

/// Makes a mount one that nothing propagates to or from, with more flags.
#[allow(unsafe_code, reason = "mount_setattr(2) has no safe form")]
pub(super) fn set_private(tree: BorrowedFd<'_>, flags: u64) -> Result<(), Errno> {
    let attributes = libc::mount_attr {
        attr_set: flags,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: the descriptor is open, the path is an empty string that lives for the whole program, and
    // the kernel reads as many bytes of the attributes as the last argument says they have.
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
    fn a_target_lies_below_the_directory_of_all() {
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
        assert!(dir.path().join("host/victim").is_dir(), "it is still there");
        // One that is a link itself.
        symlink(dir.path().join("host/victim"), dir.path().join("kubelet/pods/end")).unwrap();
        assert!(root.bind(dir.path(), &dir.path().join("kubelet/pods/end"), false).is_err());
        assert!(root.unbind(&dir.path().join("kubelet/pods/end")).is_err());
    }
}
