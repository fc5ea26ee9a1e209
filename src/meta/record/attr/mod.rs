//! Attrs: everything about a node except its content.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::meta::{Ino, Timestamp};

/// The type of a node, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileKind {
    File = 1,
    Dir = 2,
    Symlink = 3,
    Fifo = 4,
    BlockDevice = 5,
    CharDevice = 6,
    Socket = 7,
}

impl FileKind {
    pub fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::File,
            2 => Self::Dir,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::BlockDevice,
            6 => Self::CharDevice,
            7 => Self::Socket,
            _ => return None,
        })
    }
}

/// Bits of [`Attr::flags`]. Unknown bits are kept.
pub mod flag {
    pub const IMMUTABLE: u8 = 0x01;
    pub const APPEND: u8 = 0x02;
    pub const SKIP_TRASH: u8 = 0x20;
}

/// The length that every directory reports.
pub const DIR_LENGTH: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    pub flags: u8,
    pub kind: FileKind,
    /// The low 12 bits: 07777.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub nlink: u32,
    pub length: u64,
    pub rdev: u32,
    /// [`Ino::NONE`] if the node has ever been hard-linked; its parents are in separate records
    /// then.
    pub parent: Ino,
    /// 0 = none.
    pub access_acl: u32,
    pub default_acl: u32,
    pub tier: u8,
}

impl Attr {
    /// Creates the attr of a new node: one link (two for a directory), and all times `now`.
    pub fn new(kind: FileKind, mode: u16, uid: u32, gid: u32, parent: Ino, now: Timestamp) -> Self {
        let (nlink, length) = if kind == FileKind::Dir { (2, DIR_LENGTH) } else { (1, 0) };
        Self {
            flags: 0,
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            nlink,
            length,
            rdev: 0,
            parent,
            access_acl: 0,
            default_acl: 0,
            tier: 0,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    pub fn has_flag(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }

    /// Returns the space this node counts for in usage: whole 4 KiB pages, at least one.
    pub fn space(&self) -> i64 {
        align4k(if self.is_file() { self.length } else { 0 })
    }

    /// Returns whether a directory is still the same place for its entries: everything is equal
    /// except times, link count and length.
    pub fn same_place(&self, other: &Self) -> bool {
        let place = |attr: &Self| Self {
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            nlink: 0,
            length: 0,
            ..attr.clone()
        };
        place(self) == place(other)
    }

    /// Updates a directory after entries were added or removed: adds to the link count, and moves
    /// mtime and ctime forward.
    pub fn touch(&mut self, links: i64, at: Option<Timestamp>) {
        let nlink = (i64::from(self.nlink) + links).max(0);
        self.nlink = u32::try_from(nlink).unwrap_or(u32::MAX);
        if let Some(at) = at {
            self.mtime = self.mtime.max(at);
            self.ctime = self.ctime.max(at);
        }
    }

    pub fn into_dir(self) -> Result<Self> {
        if self.is_dir() { Ok(self) } else { Err(Error::NotDirectory) }
    }
}

/// Returns the space that `length` bytes count for: whole 4 KiB pages, at least one.
pub fn align4k(length: u64) -> i64 {
    i64::try_from(length.max(1).div_ceil(4096).saturating_mul(4096)).unwrap_or(i64::MAX)
}

/// Length of the fields that every record written since 1.0 has, without the trailing pad byte.
const BASE_LEN: usize = 71;
/// Very old records end before the parent.
const OLDEST_LEN: usize = 63;

impl Attr {
    /// Encodes the attr: 72 bytes, 8 more with ACL ids, 1 more with a tier. The last byte is always
    /// a zero pad.
    pub fn encode(&self) -> Bytes {
        let has_acl = self.access_acl != 0 || self.default_acl != 0;
        let has_tier = self.tier != 0;
        let len = BASE_LEN + 1 + if has_acl { 8 } else { 0 } + usize::from(has_tier);
        let mut out = BytesMut::with_capacity(len);
        out.put_u8(self.flags);
        out.put_u16((u16::from(self.kind as u8) << 12) | (self.mode & 0o7777));
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        for time in [self.atime, self.mtime, self.ctime] {
            out.put_i64(time.sec);
            out.put_u32(time.nsec);
        }
        out.put_u32(self.nlink);
        out.put_u64(self.length);
        out.put_u32(self.rdev);
        out.put_u64(self.parent.0);
        if has_acl {
            out.put_u32(self.access_acl);
            out.put_u32(self.default_acl);
        }
        if has_tier {
            out.put_u8(self.tier);
        }
        out.put_u8(0);
        out.freeze()
    }

    pub fn decode(mut raw: &[u8]) -> Result<Self> {
        let len = raw.len();
        if len < OLDEST_LEN {
            return Err(Error::damaged(
                "attr",
                format!("{len} bytes, at least {OLDEST_LEN} needed"),
            ));
        }
        let flags = raw.get_u8();
        let type_mode = raw.get_u16();
        let kind = u8::try_from(type_mode >> 12)
            .ok()
            .and_then(FileKind::from_u8)
            .ok_or_else(|| Error::damaged("attr", format!("unknown type {}", type_mode >> 12)))?;
        let (uid, gid) = (raw.get_u32(), raw.get_u32());
        let mut time = || Timestamp { sec: raw.get_i64(), nsec: raw.get_u32() };
        let (atime, mtime, ctime) = (time(), time(), time());
        let (nlink, length, rdev) = (raw.get_u32(), raw.get_u64(), raw.get_u32());
        let parent = if raw.len() >= 8 { Ino(raw.get_u64()) } else { Ino::NONE };
        let (access_acl, default_acl) =
            if raw.len() >= 8 { (raw.get_u32(), raw.get_u32()) } else { (0, 0) };
        let tier = if raw.is_empty() { 0 } else { raw.get_u8() };
        Ok(Self {
            flags,
            kind,
            mode: type_mode & 0o7777,
            uid,
            gid,
            atime,
            mtime,
            ctime,
            nlink,
            length,
            rdev,
            parent,
            access_acl,
            default_acl,
            tier,
        })
    }
}

#[cfg(test)]
mod tests;
