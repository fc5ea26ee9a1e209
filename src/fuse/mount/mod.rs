//! Mounts: making one, finding it again in the kernel's table, taking it down.
//!
//! Never looks at a path through a mount of our own: a process that waits for itself waits for
//! ever. What is mounted where is read from the kernel's table.

mod by_hand;
mod fault;
mod fusermount;
mod table;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::MntFlags;
use tracing::warn;

use crate::error::{Error, Result};
pub use table::{Mounted, mounted_at, mounts_below, stacked_at};

/// The type that `mount` and `df` show.
const SUBTYPE: &str = "juicefs";

#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What `mount` and `df` show as the device: `JuiceFS:<volume>`.
    pub source: String,
    pub read_only: bool,
    /// The kernel checks permissions by mode and owner.
    pub default_permissions: bool,
    /// Others than the one who mounts may use it; root may always allow that.
    pub allow_other: bool,
    /// Bytes in one read, at most.
    pub max_read: u32,
    /// Options for the kernel as the user gave them, such as `noatime` and `context=...`.
    pub more: Vec<String>,
    /// `None` to mount by mount(2) as root and by fusermount3 otherwise.
    pub way: Option<Way>,
    /// Mount even over another FUSE mount.
    pub on_top: bool,
}

impl MountOptions {
    pub fn new(volume: &str) -> Self {
        Self {
            source: format!("JuiceFS:{volume}"),
            read_only: false,
            default_permissions: true,
            allow_other: nix::unistd::geteuid().is_root(),
            max_read: 128 << 10,
            more: Vec::new(),
            way: None,
            on_top: false,
        }
    }
}

/// Who asks the kernel to mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// This process, by mount(2).
    Direct,
    /// The setuid program of the distribution.
    Fusermount,
}

/// How a mount is taken down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Fails if it is in use.
    Plain,
    /// Out of sight at once, gone when the last user has left.
    Lazy,
    /// Cuts the connection: whoever waits gets an error.
    Force,
}

/// A mount of ours; unmounted lazily when dropped.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    way: Way,
    /// How the kernel's table names it, if it could be found there.
    id: Option<u64>,
    /// Nothing is to be done when dropped.
    over: bool,
}

impl Mount {
    /// Mounts; the descriptor is for a [`Session`](super::Session), which must start at once: until
    /// then, whoever looks at the mount waits.
    pub fn new(point: &Path, options: &MountOptions) -> Result<(Self, OwnedFd)> {
        let point = mount_point(point, options.on_top)?;
        let root = nix::unistd::geteuid().is_root();
        let way = options.way.unwrap_or(if root { Way::Direct } else { Way::Fusermount });
        let device = match way {
            Way::Direct => by_hand::mount(&point, options)?,
            Way::Fusermount => fusermount::mount(&point, options)?,
        };
        let id = mounted_at(&point).map(|mounted| mounted.id);
        Ok((Self { point, way, id, over: false }, device))
    }

    /// A mount that another process made and whose descriptor was handed over.
    pub fn adopt(point: &Path, way: Way) -> Self {
        let id = mounted_at(point).map(|mounted| mounted.id);
        Self { point: point.to_owned(), way, id, over: false }
    }

    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether it is still there, and nothing is mounted over it.
    pub fn is_on_top(&self) -> bool {
        mounted_at(&self.point).is_some_and(|mounted| Some(mounted.id) == self.id)
    }

    /// How far ahead the kernel reads, in bytes: by itself it never goes past 128 KiB, whatever was
    /// agreed on. Needs root.
    pub fn read_ahead(&self, bytes: u32) -> Result<()> {
        let mounted = mounted_at(&self.point).ok_or(Error::NotFound)?;
        let setting = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
        fs::write(&setting, (bytes >> 10).to_string())
            .map_err(|error| Error::Unreachable { place: setting, cause: error.to_string() })
    }

    /// Takes the mount down. One that is gone already is fine.
    pub fn unmount(&mut self, how: Unmount) -> Result<()> {
        if !self.is_on_top() {
            self.over = mounted_at(&self.point).is_none();
            return Ok(());
        }
        unmount_by(self.way, &self.point, how)?;
        self.over = true;
        Ok(())
    }

    /// Leaves the mount as it is, for another process to go on with.
    pub fn leave(mut self) {
        self.over = true;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Err(error) = self.unmount(Unmount::Lazy) {
            warn!(point = %self.point.display(), %error, "cannot unmount");
        }
    }
}

/// Takes down whatever FUSE mount is on top there.
pub fn unmount(point: &Path, how: Unmount) -> Result<()> {
    let root = nix::unistd::geteuid().is_root();
    unmount_by(if root { Way::Direct } else { Way::Fusermount }, point, how)
}

fn unmount_by(way: Way, point: &Path, how: Unmount) -> Result<()> {
    if way == Way::Fusermount && !nix::unistd::geteuid().is_root() {
        return fusermount::unmount(point, how);
    }
    let detach = |flags| nix::mount::umount2(point, flags | MntFlags::UMOUNT_NOFOLLOW);
    let done = match how {
        Unmount::Plain => detach(MntFlags::empty()),
        Unmount::Lazy => detach(MntFlags::MNT_DETACH),
        // The first cuts the connection even if it cannot unmount what is in use.
        Unmount::Force => match detach(MntFlags::MNT_FORCE) {
            Err(Errno::EBUSY) => detach(MntFlags::MNT_DETACH),
            done => done,
        },
    };
    match done {
        // Not a mount: somebody else was faster.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(errno) => Err(fault::unmount(point, errno)),
    }
}

/// The place as the kernel will list it, if something can be mounted there.
fn mount_point(point: &Path, on_top: bool) -> Result<PathBuf> {
    let place = match (point.parent(), point.file_name()) {
        // The last part may be a dead mount, which cannot even be looked at.
        (Some(parent), Some(name)) => resolve(or_here(parent))?.join(name),
        _ => resolve(point)?,
    };
    if let Some(there) = mounted_at(&place).filter(|there| there.is_fuse() && !on_top) {
        return Err(fault::occupied(&place, &there));
    }
    let place = if place.is_symlink() { resolve(&place)? } else { place };
    let found = fs::metadata(&place).map_err(|error| fault::point(&place, &error))?;
    if found.is_dir() { Ok(place) } else { Err(fault::not_a_directory(&place)) }
}

fn or_here(parent: &Path) -> &Path {
    if parent == Path::new("") { Path::new(".") } else { parent }
}

fn resolve(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| fault::point(path, &error))
}

/// The options that both ways share, without those about the descriptor.
fn kernel_options(options: &MountOptions) -> Vec<OsString> {
    let mut list = Vec::new();
    if options.default_permissions {
        list.push("default_permissions".to_owned());
    }
    if options.allow_other {
        list.push("allow_other".to_owned());
    }
    list.push(format!("max_read={}", options.max_read));
    list.into_iter().map(OsString::from).collect()
}

fn joined(list: &[OsString]) -> OsString {
    list.join(OsStr::new(","))
}
