//! Attributes of nodes, in the three formats of the protocol.

use std::time::Duration;

use nix::errno::Errno;

use super::{ReplyBody, ReplyBuffers, ReplyFormat};
use crate::fuse::protocol::message_head::MessageHead;
use crate::meta::{Ino, Timestamp};

/// The attributes that stat(2) shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    pub ino: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Type and permissions.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// In the kernel's encoding: major in bits 8 to 19, minor in the rest.
    pub rdev: u32,
    pub block_size: u32,
}

impl Stat {
    fn put(&self, head: &mut MessageHead) {
        head.u64(self.ino);
        head.u64(self.size);
        head.u64(self.blocks);
        for time in [self.atime, self.mtime, self.ctime] {
            head.u64(time.sec.cast_unsigned());
        }
        for time in [self.atime, self.mtime, self.ctime] {
            head.u32(time.nsec);
        }
        for field in [self.mode, self.nlink, self.uid, self.gid, self.rdev, self.block_size, 0] {
            head.u32(field);
        }
    }
}

/// Attributes, and how long the kernel may cache them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    pub stat: Stat,
    pub lifetime: Duration,
}

impl ReplyBody for Attributes {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        head.u64(self.lifetime.as_secs());
        head.u32(self.lifetime.subsec_nanos());
        head.u32(0);
        self.stat.put(head);
        Ok(ReplyBuffers::None)
    }
}

/// The node that a name refers to. Each one sent counts as one lookup, until it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub ino: Ino,
    pub generation: u64,
    pub stat: Stat,
    /// How long the kernel may cache the name.
    pub entry_lifetime: Duration,
    /// How long the kernel may cache the attributes.
    pub attr_lifetime: Duration,
}

impl Entry {
    /// A name that does not exist, which the kernel may cache for this long.
    pub fn absent(lifetime: Duration) -> Self {
        Self {
            ino: Ino::NONE,
            generation: 0,
            stat: Stat::default(),
            entry_lifetime: lifetime,
            attr_lifetime: Duration::ZERO,
        }
    }

    pub(super) fn put(&self, head: &mut MessageHead) {
        head.u64(self.ino.0);
        head.u64(self.generation);
        head.u64(self.entry_lifetime.as_secs());
        head.u64(self.attr_lifetime.as_secs());
        head.u32(self.entry_lifetime.subsec_nanos());
        head.u32(self.attr_lifetime.subsec_nanos());
        self.stat.put(head);
    }
}

impl ReplyBody for Entry {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        self.put(head);
        Ok(ReplyBuffers::None)
    }
}

/// The attributes that statx(2) shows: in addition, the time of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statx {
    pub stat: Stat,
    /// Which fields are valid, as in statx(2).
    pub mask: u32,
    pub btime: Timestamp,
    pub lifetime: Duration,
}

impl ReplyBody for Statx {
    fn encode(self, _: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        let stat = &self.stat;
        head.u64(self.lifetime.as_secs());
        head.u32(self.lifetime.subsec_nanos());
        head.zeros(4 + 16);
        head.u32(self.mask);
        head.u32(stat.block_size);
        head.u64(0);
        for field in [stat.nlink, stat.uid, stat.gid] {
            head.u32(field);
        }
        // 16 bits of mode and 16 spare ones, in this order on any machine.
        let mode = u16::try_from(stat.mode & 0xFFFF).unwrap_or(0);
        head.bytes(&mode.to_ne_bytes());
        head.zeros(2);
        for field in [stat.ino, stat.size, stat.blocks, 0] {
            head.u64(field);
        }
        for time in [stat.atime, self.btime, stat.ctime, stat.mtime] {
            head.u64(time.sec.cast_unsigned());
            head.u32(time.nsec);
            head.u32(0);
        }
        head.u32((stat.rdev >> 8) & 0xFFF);
        head.u32((stat.rdev & 0xFF) | ((stat.rdev >> 12) & 0xF_FF00));
        head.zeros(8 + 14 * 8);
        Ok(ReplyBuffers::None)
    }
}
