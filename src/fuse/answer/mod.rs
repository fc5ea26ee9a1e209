//! Answers as the kernel expects them.
//!
//! Owns the layout of every answer. An answer is a head of fixed size and, for data, parts that are
//! written from where they lie: no answer is assembled by copying.

mod listing;
mod stat;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use fuser::FopenFlags;
use nix::errno::Errno;

use super::abi::Opcode;
use super::decode::{Fh, Lock};
use super::head::Head;
use crate::meta::record::LockKind;
pub use listing::{Listing, ListingPlus};
pub use stat::{Attributes, Entry, Stat, Statx};

/// The data of an answer, after its head.
#[derive(Debug)]
pub enum Parts {
    None,
    One(Bytes),
    Many(Vec<Bytes>),
}

/// What was asked, as far as the form of the answer depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub opcode: Opcode,
    /// Bytes there is room for, where the caller says so.
    pub size: u32,
}

/// Something the kernel can be answered.
pub trait Answer: Send + 'static {
    /// Puts the fixed part into `head` and answers the parts that follow it, or the error that is
    /// the answer instead if this one does not fit the question.
    fn encode(self, asked: Asked, head: &mut Head) -> Result<Parts, Errno>;
}

/// Done; there is nothing to say.
impl Answer for () {
    fn encode(self, _: Asked, _: &mut Head) -> Result<Parts, Errno> {
        Ok(Parts::None)
    }
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    pub fh: Fh,
    pub flags: FopenFlags,
    /// With [`FopenFlags::FOPEN_PASSTHROUGH`]: the [`Backing`](super::Backing) that reads and
    /// writes go to.
    pub backing: Option<u32>,
}

impl Opened {
    pub fn new(fh: Fh) -> Self {
        Self { fh, flags: FopenFlags::empty(), backing: None }
    }

    fn put(&self, head: &mut Head) {
        head.u64(self.fh.0);
        head.u32(self.flags.bits());
        head.u32(self.backing.unwrap_or(0));
    }
}

impl Answer for Opened {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        self.put(head);
        Ok(Parts::None)
    }
}

/// A file that was made and opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    pub entry: Entry,
    pub opened: Opened,
}

impl Answer for Created {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        self.entry.put(head);
        self.opened.put(head);
        Ok(Parts::None)
    }
}

/// What was read, in parts that follow each other. Less than was asked for means the end of the
/// file.
#[derive(Debug, Clone, Default)]
pub struct Content(pub Vec<Bytes>);

impl Answer for Content {
    fn encode(self, asked: Asked, _: &mut Head) -> Result<Parts, Errno> {
        let length: usize = self.0.iter().map(Bytes::len).sum();
        // The kernel would refuse it, and the reader would wait for ever in an older one.
        if u32::try_from(length).is_ok_and(|length| length <= asked.size) {
            Ok(Parts::Many(self.0))
        } else {
            Err(Errno::EIO)
        }
    }
}

/// The target of a symlink.
#[derive(Debug, Clone)]
pub struct Linked(pub Bytes);

impl Answer for Linked {
    fn encode(self, _: Asked, _: &mut Head) -> Result<Parts, Errno> {
        Ok(Parts::One(self.0))
    }
}

/// The value of an attribute, or the names of all, each ended by NUL. A caller who asks for the
/// size only, or has no room for it, gets what getxattr(2) says.
#[derive(Debug, Clone)]
pub struct Xattr(pub Bytes);

impl Answer for Xattr {
    fn encode(self, asked: Asked, head: &mut Head) -> Result<Parts, Errno> {
        let length = u32::try_from(self.0.len()).map_err(|_| Errno::E2BIG)?;
        match asked.size {
            0 => {
                head.u32(length);
                head.u32(0);
                Ok(Parts::None)
            }
            room if length > room => Err(Errno::ERANGE),
            _ => Ok(Parts::One(self.0)),
        }
    }
}

/// How many bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(pub u32);

impl Answer for Written {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        head.u32(self.0);
        head.u32(0);
        Ok(Parts::None)
    }
}

/// How many bytes were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied(pub u64);

impl Answer for Copied {
    fn encode(self, asked: Asked, head: &mut Head) -> Result<Parts, Errno> {
        if asked.opcode == Opcode::CopyFileRange64 {
            head.u64(self.0);
        } else {
            // The older form has no room for more; the kernel asks for less there.
            head.u32(u32::try_from(self.0).map_err(|_| Errno::EIO)?);
            head.u32(0);
        }
        Ok(Parts::None)
    }
}

/// A position in a file, or the number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(pub u64);

impl Answer for Offset {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        head.u64(self.0);
        Ok(Parts::None)
    }
}

/// Space and inodes of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub block_size: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_max: u32,
}

impl Answer for Space {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        head.u64(self.blocks);
        head.u64(self.blocks_free);
        head.u64(self.blocks_available);
        head.u64(self.files);
        head.u64(self.files_free);
        head.u32(self.block_size);
        head.u32(self.name_max);
        head.u32(self.block_size);
        head.zeros(28);
        Ok(Parts::None)
    }
}

/// The lock that is in the way, or that nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub start: u64,
    /// Inclusive.
    pub end: u64,
    /// `None` if the lock could be had.
    pub kind: Option<LockKind>,
    pub pid: u32,
}

impl Held {
    /// Nothing keeps `lock` from being had.
    pub fn free(lock: &Lock) -> Self {
        Self { start: lock.start, end: lock.end, kind: None, pid: lock.pid }
    }
}

impl Answer for Held {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        head.u64(self.start);
        head.u64(self.end);
        head.u32(match self.kind {
            Some(LockKind::Read) => 0,
            Some(LockKind::Write) => 1,
            None => 2,
        });
        head.u32(self.pid);
        Ok(Parts::None)
    }
}

/// What an ioctl returns, and the bytes it leaves behind the caller's pointer.
#[derive(Debug, Clone)]
pub struct IoctlDone {
    pub result: i32,
    pub output: Bytes,
}

impl Answer for IoctlDone {
    fn encode(self, asked: Asked, head: &mut Head) -> Result<Parts, Errno> {
        if u32::try_from(self.output.len()).map_or(true, |length| length > asked.size) {
            return Err(Errno::EINVAL);
        }
        head.u32(self.result.cast_unsigned());
        head.zeros(12);
        Ok(Parts::One(self.output))
    }
}

/// Events that are ready, as in poll(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready(pub u32);

impl Answer for Ready {
    fn encode(self, _: Asked, head: &mut Head) -> Result<Parts, Errno> {
        head.u32(self.0);
        head.u32(0);
        Ok(Parts::None)
    }
}
