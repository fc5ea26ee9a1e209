//! Encodes replies as the kernel expects them.
//!
//! Owns the layout of every reply. A reply is a head of fixed size and, for data, buffers that are
//! written from where they are: no reply is assembled by copying.

mod listing;
mod stat;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use fuser::FopenFlags;
use nix::errno::Errno;

use crate::fuse::protocol::abi::Opcode;
use crate::fuse::protocol::decode::{Fh, Lock};
use crate::fuse::protocol::message_head::MessageHead;
use crate::meta::record::LockKind;
pub use listing::{Listing, ListingPlus};
pub use stat::{Attributes, Entry, Stat, Statx};

/// The data of a reply, after its head.
#[derive(Debug)]
pub enum ReplyBuffers {
    None,
    One(Bytes),
    Many(Vec<Bytes>),
}

/// The parts of a request that decide the format of its reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyFormat {
    pub opcode: Opcode,
    /// Bytes that the caller has room for, if it says so.
    pub size: u32,
}

/// The content of a reply.
pub trait ReplyBody: Send + 'static {
    /// Puts the fixed fields into `head` and returns the buffers that follow them, or an error to
    /// send instead if this content does not fit the request.
    fn encode(self, format: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno>;
}

/// Success without content.
impl ReplyBody for () {
    fn encode(self, _: ReplyFormat, _: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        Ok(ReplyBuffers::None)
    }
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReply {
    pub fh: Fh,
    pub flags: FopenFlags,
    /// With [`FopenFlags::FOPEN_PASSTHROUGH`]: the [`Backing`](crate::fuse::Backing) that reads and
    /// writes go to.
    pub backing: Option<u32>,
}

impl OpenReply {
    pub fn new(fh: Fh) -> Self {
        Self { fh, flags: FopenFlags::empty(), backing: None }
    }

    fn put(&self, head: &mut MessageHead) {
        head.u64(self.fh.0);
        head.u32(self.flags.bits());
        head.u32(self.backing.unwrap_or(0));
    }
}

impl ReplyBody for OpenReply {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        self.put(head);
        Ok(ReplyBuffers::None)
    }
}

/// A file that was created and opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateReply {
    pub entry: Entry,
    pub opened: OpenReply,
}

impl ReplyBody for CreateReply {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        self.entry.put(head);
        self.opened.put(head);
        Ok(ReplyBuffers::None)
    }
}

/// The data of a read, in consecutive buffers. Less than was asked for means the end of the file.
#[derive(Debug, Clone, Default)]
pub struct ReadReply(pub Vec<Bytes>);

impl ReplyBody for ReadReply {
    fn encode(self, format: ReplyFormat, _: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        let length: usize = self.0.iter().map(Bytes::len).sum();
        // The kernel would reject it, and in an older kernel the reader would wait forever.
        if u32::try_from(length).is_ok_and(|length| length <= format.size) {
            Ok(ReplyBuffers::Many(self.0))
        } else {
            Err(Errno::EIO)
        }
    }
}

/// The target of a symlink.
#[derive(Debug, Clone)]
pub struct LinkTarget(pub Bytes);

impl ReplyBody for LinkTarget {
    fn encode(self, _: ReplyFormat, _: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        Ok(ReplyBuffers::One(self.0))
    }
}

/// The value of an attribute, or the names of all, each terminated by NUL. A caller that asks for
/// the size only, or has too little room, gets what getxattr(2) specifies.
#[derive(Debug, Clone)]
pub struct Xattr(pub Bytes);

impl ReplyBody for Xattr {
    fn encode(self, format: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        let length = u32::try_from(self.0.len()).map_err(|_| Errno::E2BIG)?;
        match format.size {
            0 => {
                head.u32(length);
                head.u32(0);
                Ok(ReplyBuffers::None)
            }
            room if length > room => Err(Errno::ERANGE),
            _ => Ok(ReplyBuffers::One(self.0)),
        }
    }
}

/// How many bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBytes(pub u32);

impl ReplyBody for WrittenBytes {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        head.u32(self.0);
        head.u32(0);
        Ok(ReplyBuffers::None)
    }
}

/// How many bytes were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedBytes(pub u64);

impl ReplyBody for CopiedBytes {
    fn encode(self, format: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        if format.opcode == Opcode::CopyFileRange64 {
            head.u64(self.0);
        } else {
            // The older format has 32 bits; the kernel then asks for less.
            head.u32(u32::try_from(self.0).map_err(|_| Errno::EIO)?);
            head.u32(0);
        }
        Ok(ReplyBuffers::None)
    }
}

/// An offset in a file, or the number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(pub u64);

impl ReplyBody for Offset {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        head.u64(self.0);
        Ok(ReplyBuffers::None)
    }
}

/// Space and inodes of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatfsReply {
    pub block_size: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_max: u32,
}

impl ReplyBody for StatfsReply {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        head.u64(self.blocks);
        head.u64(self.blocks_free);
        head.u64(self.blocks_available);
        head.u64(self.files);
        head.u64(self.files_free);
        head.u32(self.block_size);
        head.u32(self.name_max);
        head.u32(self.block_size);
        head.zeros(28);
        Ok(ReplyBuffers::None)
    }
}

/// The lock that conflicts with the requested one, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockConflict {
    pub start: u64,
    /// Inclusive.
    pub end: u64,
    /// `None` if there is no conflict.
    pub kind: Option<LockKind>,
    pub pid: u32,
}

impl LockConflict {
    /// Reports that nothing conflicts with `lock`.
    pub fn free(lock: &Lock) -> Self {
        Self { start: lock.start, end: lock.end, kind: None, pid: lock.pid }
    }
}

impl ReplyBody for LockConflict {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        head.u64(self.start);
        head.u64(self.end);
        head.u32(match self.kind {
            Some(LockKind::Read) => 0,
            Some(LockKind::Write) => 1,
            None => 2,
        });
        head.u32(self.pid);
        Ok(ReplyBuffers::None)
    }
}

/// The result of an ioctl, and the bytes for the caller's buffer.
#[derive(Debug, Clone)]
pub struct IoctlReply {
    pub result: i32,
    pub output: Bytes,
}

impl ReplyBody for IoctlReply {
    fn encode(self, format: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        if u32::try_from(self.output.len()).map_or(true, |length| length > format.size) {
            return Err(Errno::EINVAL);
        }
        head.u32(self.result.cast_unsigned());
        head.zeros(12);
        Ok(ReplyBuffers::One(self.output))
    }
}

/// Events that are ready, as in poll(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollEvents(pub u32);

impl ReplyBody for PollEvents {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        head.u32(self.0);
        head.u32(0);
        Ok(ReplyBuffers::None)
    }
}
