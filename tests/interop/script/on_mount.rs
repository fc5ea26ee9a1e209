//! Runs steps on a mount.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags,
};

use crate::script::step::{Acl, Allocate, NodeType, RenameFlag, Step, Xattr, content};
use crate::support::command::poll;
use crate::support::juicefs::juicefs;

const PATIENCE: Duration = Duration::from_secs(20);

pub type Outcome = Result<(), Errno>;

/// Runs one step as root below `root`.
pub fn run(root: &Path, step: &Step) -> Outcome {
    if removes_names(step) {
        wait_until_closed(root);
    }
    attempt(root, step).map_err(|error| {
        let code = error.raw_os_error().unwrap_or_else(|| panic!("{step:?}: {error}"));
        Errno::from_raw(code)
    })
}

fn attempt(root: &Path, step: &Step) -> io::Result<()> {
    let at = |path: &str| -> PathBuf { root.join(path.trim_start_matches('/')) };
    let mode = |mode: u16| Mode::from_raw_mode(mode.into());
    match step {
        Step::Mkdir(path, bits) => rustix::fs::mkdir(at(path), mode(*bits))?,
        Step::File(path, bits) => {
            let mut options = OpenOptions::new();
            drop(options.write(true).create_new(true).mode((*bits).into()).open(at(path))?);
        }
        Step::Mknod(path, special, bits) => {
            let (kind, device) = match special {
                NodeType::Fifo => (FileType::Fifo, 0),
                NodeType::Socket => (FileType::Socket, 0),
                NodeType::Char(device) => (FileType::CharacterDevice, *device),
                NodeType::Block(device) => (FileType::BlockDevice, *device),
                NodeType::Plain => (FileType::RegularFile, 0),
            };
            rustix::fs::mknodat(CWD, at(path), kind, mode(*bits), device.into())?;
        }
        Step::Symlink { target, path } => std::os::unix::fs::symlink(target, at(path))?,
        Step::Link(from, to) => std::fs::hard_link(at(from), at(to))?,
        Step::Unlink(path) => rustix::fs::unlink(at(path))?,
        Step::Rmdir(path) => rustix::fs::rmdir(at(path))?,
        Step::Rename(from, to, flag) => {
            let flags = match flag {
                RenameFlag::Replace => RenameFlags::empty(),
                RenameFlag::NoReplace => RenameFlags::NOREPLACE,
                RenameFlag::Exchange => RenameFlags::EXCHANGE,
                RenameFlag::Whiteout => RenameFlags::WHITEOUT,
            };
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?;
        }
        Step::Chmod(path, bits) => rustix::fs::chmod(at(path), mode(*bits))?,
        Step::Chown(path, uid, gid) => lchown(at(path), Some(*uid), Some(*gid))?,
        Step::Times(path, atime, mtime) => {
            let times = Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
            rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Step::SetXattr(path, name, value, how) => {
            let flags = match how {
                Xattr::Any => XattrFlags::empty(),
                Xattr::Create => XattrFlags::CREATE,
                Xattr::Replace => XattrFlags::REPLACE,
            };
            rustix::fs::lsetxattr(at(path), name, value.as_bytes(), flags)?;
        }
        Step::RemoveXattr(path, name) => rustix::fs::lremovexattr(at(path), name)?,
        Step::SetAcl(path, which, rule) => {
            let name = match which {
                Acl::Access => "system.posix_acl_access",
                Acl::Default => "system.posix_acl_default",
            };
            if rule.is_empty() {
                rustix::fs::removexattr(at(path), name)?;
            } else {
                rustix::fs::setxattr(at(path), name, rule, XattrFlags::empty())?;
            }
        }
        Step::Truncate(path, length) => {
            nix::unistd::truncate(&at(path), i64::try_from(*length).unwrap())?;
        }
        Step::Fallocate(path, how, off, len) => {
            let flags = match how {
                Allocate::Grow => FallocateFlags::empty(),
                Allocate::Keep => FallocateFlags::KEEP_SIZE,
                Allocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                Allocate::Zero => FallocateFlags::ZERO_RANGE,
                Allocate::ZeroKeep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            };
            rustix::fs::fallocate(writable(&at(path))?, flags, *off, *len)?;
        }
        Step::Copy(from, from_off, to, to_off, len) => {
            let (source, sink) = (File::open(at(from))?, writable(&at(to))?);
            let (mut from_off, mut to_off) = (*from_off, *to_off);
            let len = usize::try_from(*len).unwrap();
            rustix::fs::copy_file_range(source, Some(&mut from_off), sink, Some(&mut to_off), len)?;
        }
        Step::Write(path, off, len) => {
            let file = writable(&at(path))?;
            file.write_all_at(&content(*off, *len), *off)?;
            // Closing alone would not report errors.
            file.sync_all()?;
        }
        Step::Clone { from, to, preserve } => {
            let (from, to) = (at(from), at(to));
            let mut words = vec!["clone", from.to_str().unwrap(), to.to_str().unwrap()];
            words.extend(preserve.then_some("--preserve"));
            juicefs(&words).ok();
        }
        Step::As(uid, gid, step) => {
            setfsgid(Gid::from_raw(*gid));
            setfsuid(Uid::from_raw(*uid));
            let outcome = attempt(root, step);
            setfsuid(Uid::from_raw(0));
            setfsgid(Gid::from_raw(0));
            outcome?;
        }
    }
    Ok(())
}

fn removes_names(step: &Step) -> bool {
    match step {
        Step::Unlink(_) | Step::Rename(..) => true,
        Step::As(_, _, step) => removes_names(step),
        _ => false,
    }
}

/// Waits until the client knows that files are closed: the kernel reports it a moment later, and a file
/// that is removed while open is treated differently.
fn wait_until_closed(root: &Path) {
    let handles = || {
        let stats = std::fs::read_to_string(root.join(".stats")).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("juicefs_fuse_open_handlers "));
        line.unwrap().trim().parse::<f64>().unwrap()
    };
    // The handle that reads this file.
    assert!(poll(PATIENCE, || handles() <= 1.0), "a file stays open");
}

fn writable(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn time(nanos: u64) -> Timespec {
    let (sec, nsec) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Timespec { tv_sec: sec.cast_signed(), tv_nsec: nsec.cast_signed() }
}
