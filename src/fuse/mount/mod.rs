//! Mounting, unmounting, and finding mounts in the kernel's table.
//!
//! Never inspects a path through a mount of our own: a process that waits for itself waits forever.
//! What is mounted where is read from the kernel's table.

mod direct;
mod errors;
mod fusermount;
mod mount_table;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::MntFlags;
use tracing::warn;

use crate::error::{Error, Result};
pub use mount_table::{MountEntry, mounted_at, mounts_below, stacked_at};

/// The type that `mount` and `df` show.
const SUBTYPE: &str = "juicefs";

#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What `mount` and `df` show as the device: `JuiceFS:<volume>`.
    pub source: String,
    pub read_only: bool,
    /// The kernel checks permissions by mode and owner.
    pub default_permissions: bool,
    /// Users other than the one who mounts may use it; root may always allow that.
    pub allow_other: bool,
    /// The most bytes in one read.
    pub max_read: u32,
    /// Options for the kernel as the user gave them, such as `noatime` and `context=...`.
    pub more: Vec<String>,
    /// `None`: mount(2) as root, fusermount3 otherwise.
    pub method: Option<MountMethod>,
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
            method: None,
            on_top: false,
        }
    }
}

/// How the kernel is asked to mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountMethod {
    /// This process, by mount(2).
    Direct,
    /// The setuid program of the distribution.
    Fusermount,
}

impl MountMethod {
    /// Returns how this process unmounts.
    pub fn of_this_process() -> Self {
        if nix::unistd::geteuid().is_root() { Self::Direct } else { Self::Fusermount }
    }
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Fails if it is in use.
    Plain,
    /// Detached at once, gone when the last user has closed its files.
    Lazy,
    /// Aborts the connection: waiting processes get an error.
    Force,
}

/// A mount of this process. Dropping it unmounts it lazily.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    method: MountMethod,
    /// The id in the kernel's table, if it could be found there.
    id: Option<u64>,
    /// Dropping must not unmount.
    over: bool,
}

impl Mount {
    /// Mounts. Start a [`Session`](super::Session) with the descriptor at once: until then, every
    /// process that accesses the mount waits.
    pub fn new(point: &Path, options: &MountOptions) -> Result<(Self, OwnedFd)> {
        let point = mount_point(point, options.on_top)?;
        let method = options.method.unwrap_or_else(MountMethod::of_this_process);
        let device = match method {
            MountMethod::Direct => direct::mount(&point, options)?,
            MountMethod::Fusermount => fusermount::mount(&point, options)?,
        };
        let id = mounted_at(&point).map(|mounted| mounted.id);
        Ok((Self { point, method, id, over: false }, device))
    }

    /// Takes over a mount that another process created and whose descriptor was handed over.
    pub fn adopt(point: &Path, method: MountMethod) -> Self {
        let id = mounted_at(point).map(|mounted| mounted.id);
        Self { point: point.to_owned(), method, id, over: false }
    }

    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether it still exists, and nothing is mounted over it.
    pub fn is_on_top(&self) -> bool {
        mounted_at(&self.point).is_some_and(|mounted| Some(mounted.id) == self.id)
    }

    /// Sets the kernel's readahead in bytes: by default it never exceeds 128 KiB, whatever was
    /// negotiated. Needs root.
    pub fn read_ahead(&self, bytes: u32) -> Result<()> {
        let mounted = mounted_at(&self.point).ok_or(Error::NotFound)?;
        let setting = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
        fs::write(&setting, (bytes >> 10).to_string())
            .map_err(|error| Error::Unreachable { place: setting, cause: error.to_string() })
    }

    /// Unmounts. A mount that is gone already is fine.
    pub fn unmount(&mut self, how: Unmount) -> Result<()> {
        if !self.is_on_top() {
            self.over = mounted_at(&self.point).is_none();
            return Ok(());
        }
        unmount_by(self.method, &self.point, how)?;
        self.over = true;
        Ok(())
    }

    /// Leaves the mount in place, for another process to continue with.
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

/// Unmounts the topmost FUSE mount at a path.
pub fn unmount(point: &Path, how: Unmount) -> Result<()> {
    unmount_by(MountMethod::of_this_process(), point, how)
}

fn unmount_by(method: MountMethod, point: &Path, how: Unmount) -> Result<()> {
    if method == MountMethod::Fusermount && !nix::unistd::geteuid().is_root() {
        return fusermount::unmount(point, how);
    }
    let detach = |flags| nix::mount::umount2(point, flags | MntFlags::UMOUNT_NOFOLLOW);
    let done = match how {
        Unmount::Plain => detach(MntFlags::empty()),
        Unmount::Lazy => detach(MntFlags::MNT_DETACH),
        // The first call aborts the connection even if it cannot unmount because of users.
        Unmount::Force => match detach(MntFlags::MNT_FORCE) {
            Err(Errno::EBUSY) => detach(MntFlags::MNT_DETACH),
            done => done,
        },
    };
    match done {
        // No longer a mount.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errors::unmount(point, errno)),
    }
}

/// Returns the mount point as the kernel will list it, if a mount is possible there.
fn mount_point(point: &Path, on_top: bool) -> Result<PathBuf> {
    let place = match (point.parent(), point.file_name()) {
        // The last component may be a dead mount, which cannot even be inspected.
        (Some(parent), Some(name)) => resolve(or_here(parent))?.join(name),
        _ => resolve(point)?,
    };
    if let Some(there) = mounted_at(&place).filter(|there| there.is_fuse() && !on_top) {
        return Err(errors::occupied(&place, &there));
    }
    let place = if place.is_symlink() { resolve(&place)? } else { place };
    let found = fs::metadata(&place).map_err(|error| errors::point(&place, &error))?;
    if found.is_dir() { Ok(place) } else { Err(errors::not_a_directory(&place)) }
}

fn or_here(parent: &Path) -> &Path {
    if parent == Path::new("") { Path::new(".") } else { parent }
}

fn resolve(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| errors::point(path, &error))
}

/// Returns the options that both methods share, without those about the descriptor.
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
