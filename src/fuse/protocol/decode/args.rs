//! The arguments of operations with more than one or two.

use super::cursor::Cursor;
use super::{Fh, Malformed};
use crate::fuse::protocol::abi::{fattr, flag};
use crate::meta::record::LockKind;
use crate::meta::{Ino, Timestamp};

/// The version and features that the kernel offers in INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitOffer {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    /// Bits of [`fuser::InitFlags`].
    pub flags: u64,
}

impl InitOffer {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (major, minor) = (c.u32()?, c.u32()?);
        let (max_readahead, low) = (c.u32()?, c.u32()?);
        let extended = u64::from(low) & fuser::InitFlags::FUSE_INIT_EXT.bits() != 0;
        let high = if extended { c.u32()? } else { 0 };
        let flags = u64::from(high) << 32 | u64::from(low);
        Ok(Self { major, minor, max_readahead, flags })
    }
}

/// Nodes that the kernel has forgotten, and how many lookups of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl<'a> Forgets<'a> {
    const ONE: usize = 16;

    pub(super) fn decode(c: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let count = usize::try_from(c.u32()?).map_err(|_| Malformed)?;
        c.skip(4)?;
        Ok(Self(c.take(count.checked_mul(Self::ONE).ok_or(Malformed)?)?))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Ino, u64)> + use<'a> {
        self.0.chunks_exact(Self::ONE).filter_map(|one| {
            let mut c = Cursor::new(one);
            Some((Ino(c.u64().ok()?), c.u64().ok()?))
        })
    }
}

/// A time that a setattr sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// The changes of a setattr; other attributes stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Only with the kernel's write-back cache.
    pub ctime: Option<Timestamp>,
    /// The handle that the call was made through.
    pub fh: Option<Fh>,
    pub lock_owner: Option<u64>,
    /// The setuid and setgid bits must be cleared.
    pub kill_suidgid: bool,
}

impl SetAttr {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let valid = c.u32()?;
        c.skip(4)?;
        let (fh, size, lock_owner) = (c.u64()?, c.u64()?, c.u64()?);
        let (atime, mtime, ctime) = (c.u64()?, c.u64()?, c.u64()?);
        let (atime_nsec, mtime_nsec, ctime_nsec) = (c.u32()?, c.u32()?, c.u32()?);
        let mode = c.u32()?;
        c.skip(4)?;
        let (uid, gid) = (c.u32()?, c.u32()?);
        let has = |bit: u32| valid & bit != 0;
        let at = |sec: u64, nsec| Timestamp { sec: sec.cast_signed(), nsec };
        let time = |now, bit, at| match (has(now), has(bit)) {
            (true, _) => Some(SetTime::Now),
            (false, true) => Some(SetTime::At(at)),
            (false, false) => None,
        };
        Ok(Self {
            mode: has(fattr::MODE).then_some(mode),
            uid: has(fattr::UID).then_some(uid),
            gid: has(fattr::GID).then_some(gid),
            size: has(fattr::SIZE).then_some(size),
            atime: time(fattr::ATIME_NOW, fattr::ATIME, at(atime, atime_nsec)),
            mtime: time(fattr::MTIME_NOW, fattr::MTIME, at(mtime, mtime_nsec)),
            ctime: has(fattr::CTIME).then_some(at(ctime, ctime_nsec)),
            fh: has(fattr::FH).then_some(Fh(fh)),
            lock_owner: has(fattr::LOCK_OWNER).then_some(lock_owner),
            kill_suidgid: has(fattr::KILL_SUIDGID),
        })
    }
}

/// statx(2): the flags and mask of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatxRequest {
    pub fh: Option<Fh>,
    pub flags: u32,
    pub mask: u32,
}

impl StatxRequest {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let fh = super::getattr_handle(c)?;
        Ok(Self { fh, flags: c.u32()?, mask: c.u32()? })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mknod<'a> {
    pub name: &'a [u8],
    /// Type and permissions.
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
}

impl<'a> Mknod<'a> {
    pub(super) fn decode(c: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let (mode, rdev, umask) = (c.u32()?, c.u32()?, c.u32()?);
        c.skip(4)?;
        Ok(Self { name: c.name()?, mode, rdev, umask })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rename<'a> {
    pub name: &'a [u8],
    pub new_dir: Ino,
    pub new_name: &'a [u8],
    /// As in renameat2(2).
    pub flags: u32,
}

impl<'a> Rename<'a> {
    pub(super) fn decode(c: &mut Cursor<'a>, with_flags: bool) -> Result<Self, Malformed> {
        let new_dir = Ino(c.u64()?);
        let mut flags = 0;
        if with_flags {
            flags = c.u32()?;
            c.skip(4)?;
        }
        Ok(Self { name: c.name()?, new_dir, new_name: c.name()?, flags })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// As in open(2).
    pub flags: u32,
    /// The setuid and setgid bits must be cleared: opening truncates the file.
    pub kill_suidgid: bool,
}

impl Open {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self { flags: c.u32()?, kill_suidgid: c.u32()? & flag::OPEN_KILL_SUIDGID != 0 })
    }
}

/// A file to create and open; the name of a temporary file is meaningless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a> {
    pub name: &'a [u8],
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
    pub kill_suidgid: bool,
}

impl<'a> Create<'a> {
    pub(super) fn decode(c: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let (flags, mode, umask) = (c.u32()?, c.u32()?, c.u32()?);
        let kill_suidgid = c.u32()? & flag::OPEN_KILL_SUIDGID != 0;
        Ok(Self { name: c.name()?, flags, mode, umask, kill_suidgid })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub fh: Fh,
    pub offset: u64,
    pub size: u32,
    pub lock_owner: Option<u64>,
    /// The flags the file is open with.
    pub flags: u32,
}

impl Read {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (fh, offset, size) = (Fh(c.u64()?), c.u64()?, c.u32()?);
        let read_flags = c.u32()?;
        let owner = c.u64()?;
        let lock_owner = (read_flags & flag::READ_LOCK_OWNER != 0).then_some(owner);
        Ok(Self { fh, offset, size, lock_owner, flags: c.u32()? })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    pub fh: Fh,
    pub offset: u64,
    pub size: u32,
    pub lock_owner: Option<u64>,
    pub flags: u32,
    /// Comes from the kernel's write-back cache: `fh` may be any that is open for writing, and the
    /// kernel maintains the times.
    pub from_cache: bool,
    pub kill_suidgid: bool,
}

impl Write {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (fh, offset, size) = (Fh(c.u64()?), c.u64()?, c.u32()?);
        let write_flags = c.u32()?;
        let owner = c.u64()?;
        let flags = c.u32()?;
        c.skip(4)?;
        if usize::try_from(size) != Ok(c.left()) {
            return Err(Malformed);
        }
        Ok(Self {
            fh,
            offset,
            size,
            lock_owner: (write_flags & flag::WRITE_LOCK_OWNER != 0).then_some(owner),
            flags,
            from_cache: write_flags & flag::WRITE_CACHE != 0,
            kill_suidgid: write_flags & flag::WRITE_KILL_SUIDGID != 0,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub fh: Fh,
    pub flags: u32,
    pub lock_owner: u64,
    /// Must also flush.
    pub flush: bool,
    /// The owner's flock(2) lock must be released.
    pub flock_unlock: bool,
}

impl Release {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (fh, flags, release_flags) = (Fh(c.u64()?), c.u32()?, c.u32()?);
        Ok(Self {
            fh,
            flags,
            lock_owner: c.u64()?,
            flush: release_flags & flag::RELEASE_FLUSH != 0,
            flock_unlock: release_flags & flag::RELEASE_FLOCK_UNLOCK != 0,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadDir {
    pub fh: Fh,
    /// The offset of the last entry received; 0 to start.
    pub offset: u64,
    /// Bytes that the caller has room for.
    pub size: u32,
}

impl ReadDir {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let read = Read::decode(c)?;
        Ok(Self { fh: read.fh, offset: read.offset, size: read.size })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetXattr<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// As in setxattr(2).
    pub flags: u32,
    /// A user outside the group sets the access ACL: the setgid bit must be cleared.
    pub kill_sgid: bool,
}

impl<'a> SetXattr<'a> {
    pub(super) fn decode(c: &mut Cursor<'a>, extended: bool) -> Result<Self, Malformed> {
        let (size, flags) = (c.u32()?, c.u32()?);
        let mut kill_sgid = false;
        if extended {
            kill_sgid = c.u32()? & flag::SETXATTR_ACL_KILL_SGID != 0;
            c.skip(4)?;
        }
        let name = c.name()?;
        let value = c.take(usize::try_from(size).map_err(|_| Malformed)?)?;
        Ok(Self { name, value, flags, kill_sgid })
    }
}

/// A lock to set or to test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    pub fh: Fh,
    pub owner: u64,
    pub start: u64,
    /// Inclusive.
    pub end: u64,
    /// `None` to unlock.
    pub kind: Option<LockKind>,
    pub pid: u32,
    /// A flock(2) lock, on the whole file; else a fcntl(2) lock. The two are independent.
    pub flock: bool,
}

impl Lock {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (fh, owner) = (Fh(c.u64()?), c.u64()?);
        let (start, end, kind, pid) = (c.u64()?, c.u64()?, c.u32()?, c.u32()?);
        let kind = match kind {
            0 => Some(LockKind::Read),
            1 => Some(LockKind::Write),
            2 => None,
            _ => return Err(Malformed),
        };
        Ok(Self { fh, owner, start, end, kind, pid, flock: c.u32()? & flag::LK_FLOCK != 0 })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocate {
    pub fh: Fh,
    pub offset: u64,
    pub length: u64,
    /// As in fallocate(2).
    pub mode: u32,
}

impl Allocate {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self { fh: Fh(c.u64()?), offset: c.u64()?, length: c.u64()?, mode: c.u32()? })
    }
}

/// A copy from the node of the request to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    pub fh: Fh,
    pub offset: u64,
    pub to: Ino,
    pub to_fh: Fh,
    pub to_offset: u64,
    pub length: u64,
    pub flags: u64,
}

impl CopyRange {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            fh: Fh(c.u64()?),
            offset: c.u64()?,
            to: Ino(c.u64()?),
            to_fh: Fh(c.u64()?),
            to_offset: c.u64()?,
            length: c.u64()?,
            flags: c.u64()?,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ioctl<'a> {
    pub fh: Fh,
    /// Bits of [`fuser::IoctlFlags`].
    pub flags: u32,
    pub command: u32,
    /// The third argument of ioctl(2), as the caller passed it.
    pub argument: u64,
    pub input: &'a [u8],
    /// The most bytes that may be returned.
    pub output_size: u32,
}

impl<'a> Ioctl<'a> {
    pub(super) fn decode(c: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let (fh, flags, command) = (Fh(c.u64()?), c.u32()?, c.u32()?);
        let argument = c.u64()?;
        let (input, output_size) = (c.u32()?, c.u32()?);
        let input = c.take(usize::try_from(input).map_err(|_| Malformed)?)?;
        Ok(Self { fh, flags, command, argument, input, output_size })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    pub fh: Fh,
    /// Identifies the waiter to wake up.
    pub handle: u64,
    pub flags: u32,
    pub events: u32,
}

impl Poll {
    pub(super) fn decode(c: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self { fh: Fh(c.u64()?), handle: c.u64()?, flags: c.u32()?, events: c.u32()? })
    }
}
