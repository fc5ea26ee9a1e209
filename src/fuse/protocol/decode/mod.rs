//! Decodes requests from the kernel: a header, fixed arguments, names, data.
//!
//! Owns the layout of every request and trusts none of it: an inconsistent length is [`Malformed`],
//! never a panic. Must not know what an operation does.

mod args;
mod cursor;
#[cfg(test)]
mod tests;

pub use args::{
    Allocate, CopyRange, Create, Forgets, InitOffer, Ioctl, Lock, Mknod, Open, Poll, Read, ReadDir,
    Release, Rename, SetAttr, SetTime, SetXattr, StatxRequest, Write,
};
use cursor::Cursor;
use fuser::InitFlags;

use crate::fuse::protocol::abi::{self, Opcode, flag};
use crate::meta::Ino;
pub use crate::vfs::Fh;

/// A request that violates the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The caller of a request, and the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The kernel's number for this request.
    pub unique: u64,
    pub ino: Ino,
    pub uid: u32,
    pub gid: u32,
    /// The calling thread; 0 if it is the kernel itself or in another PID namespace.
    pub pid: u32,
}

impl Request {
    /// Whether this request was sent before and may have been processed already.
    pub fn is_resent(&self) -> bool {
        self.unique & abi::RESENT != 0
    }
}

/// The header of a request, without which there can be no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// As sent: may be unknown.
    pub opcode: u32,
    pub request: Request,
    /// Length of the body after the header, without extensions.
    body: usize,
}

impl Header {
    /// Decodes the header of a message with exactly these bytes.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(message);
        let length = cursor.u32()?;
        let opcode = cursor.u32()?;
        let (unique, ino) = (cursor.u64()?, cursor.u64()?);
        let (uid, gid, pid) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let extensions = usize::from(cursor.u16()?) * 8;
        if usize::try_from(length) != Ok(message.len()) {
            return Err(Malformed);
        }
        let body = message.len() - abi::IN_HEADER.min(message.len());
        let body = body.checked_sub(extensions).ok_or(Malformed)?;
        let request = Request { unique, ino: Ino(ino), uid, gid, pid };
        Ok(Self { opcode, request, body })
    }

    /// Returns the part of the message that [`Operation::decode`] takes.
    pub fn body<'a>(&self, message: &'a [u8]) -> Result<&'a [u8], Malformed> {
        message.get(abi::IN_HEADER..abi::IN_HEADER + self.body).ok_or(Malformed)
    }
}

/// A request with its arguments. Names and data are borrowed from the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    Init(InitOffer),
    Destroy,
    Interrupt {
        unique: u64,
    },
    NotifyReply,
    Forget {
        lookups: u64,
    },
    BatchForget(Forgets<'a>),
    Lookup {
        name: &'a [u8],
    },
    Getattr {
        fh: Option<Fh>,
    },
    Setattr(SetAttr),
    Statx(StatxRequest),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod(Mknod<'a>),
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename(Rename<'a>),
    Link {
        node: Ino,
        name: &'a [u8],
    },
    Access {
        mask: u32,
    },
    Open(Open),
    Create(Create<'a>),
    Tmpfile(Create<'a>),
    Read(Read),
    /// The data follows the fixed arguments; its length was checked.
    Write(Write),
    Flush {
        fh: Fh,
        lock_owner: u64,
    },
    Release(Release),
    Fsync {
        fh: Fh,
        data_only: bool,
    },
    Opendir(Open),
    Readdir(ReadDir),
    Readdirplus(ReadDir),
    Releasedir(Release),
    Fsyncdir {
        fh: Fh,
        data_only: bool,
    },
    Statfs,
    Syncfs,
    Setxattr(SetXattr<'a>),
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Getlk(Lock),
    Setlk(Lock),
    Setlkw(Lock),
    Fallocate(Allocate),
    Lseek {
        fh: Fh,
        offset: u64,
        whence: u32,
    },
    CopyFileRange(CopyRange),
    Ioctl(Ioctl<'a>),
    Poll(Poll),
    Bmap {
        block: u64,
        block_size: u32,
    },
}

impl<'a> Operation<'a> {
    /// Decodes the body of a request. `agreed` are the flags of INIT, which change some layouts.
    pub fn decode(opcode: Opcode, body: &'a [u8], agreed: InitFlags) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        let c = &mut cursor;
        Ok(match opcode {
            Opcode::Init => Self::Init(InitOffer::decode(c)?),
            Opcode::Destroy => Self::Destroy,
            Opcode::Interrupt => Self::Interrupt { unique: c.u64()? },
            Opcode::NotifyReply => Self::NotifyReply,
            Opcode::Forget => Self::Forget { lookups: c.u64()? },
            Opcode::BatchForget => Self::BatchForget(Forgets::decode(c)?),
            Opcode::Lookup => Self::Lookup { name: c.name()? },
            Opcode::Getattr => Self::Getattr { fh: getattr_handle(c)? },
            Opcode::Setattr => Self::Setattr(SetAttr::decode(c)?),
            Opcode::Statx => Self::Statx(StatxRequest::decode(c)?),
            Opcode::Readlink => Self::Readlink,
            Opcode::Symlink => Self::Symlink { name: c.name()?, target: c.name()? },
            Opcode::Mknod => Self::Mknod(Mknod::decode(c)?),
            Opcode::Mkdir => Self::Mkdir { mode: c.u32()?, umask: c.u32()?, name: c.name()? },
            Opcode::Unlink => Self::Unlink { name: c.name()? },
            Opcode::Rmdir => Self::Rmdir { name: c.name()? },
            Opcode::Rename => Self::Rename(Rename::decode(c, false)?),
            Opcode::Rename2 => Self::Rename(Rename::decode(c, true)?),
            Opcode::Link => Self::Link { node: Ino(c.u64()?), name: c.name()? },
            Opcode::Access => Self::Access { mask: c.u32()? },
            Opcode::Open => Self::Open(Open::decode(c)?),
            Opcode::Create => Self::Create(Create::decode(c)?),
            Opcode::Tmpfile => Self::Tmpfile(Create::decode(c)?),
            Opcode::Read => Self::Read(Read::decode(c)?),
            Opcode::Write => Self::Write(Write::decode(c)?),
            Opcode::Flush => {
                let fh = Fh(c.u64()?);
                c.skip(8)?;
                Self::Flush { fh, lock_owner: c.u64()? }
            }
            Opcode::Release => Self::Release(Release::decode(c)?),
            Opcode::Fsync => {
                let (fh, data_only) = fsync(c)?;
                Self::Fsync { fh, data_only }
            }
            Opcode::Opendir => Self::Opendir(Open::decode(c)?),
            Opcode::Readdir => Self::Readdir(ReadDir::decode(c)?),
            Opcode::Readdirplus => Self::Readdirplus(ReadDir::decode(c)?),
            Opcode::Releasedir => Self::Releasedir(Release::decode(c)?),
            Opcode::Fsyncdir => {
                let (fh, data_only) = fsync(c)?;
                Self::Fsyncdir { fh, data_only }
            }
            Opcode::Statfs => Self::Statfs,
            Opcode::Syncfs => Self::Syncfs,
            Opcode::Setxattr => {
                let extended = agreed.contains(InitFlags::FUSE_SETXATTR_EXT);
                Self::Setxattr(SetXattr::decode(c, extended)?)
            }
            Opcode::Getxattr => {
                let size = c.u32()?;
                c.skip(4)?;
                Self::Getxattr { size, name: c.name()? }
            }
            Opcode::Listxattr => Self::Listxattr { size: c.u32()? },
            Opcode::Removexattr => Self::Removexattr { name: c.name()? },
            Opcode::Getlk => Self::Getlk(Lock::decode(c)?),
            Opcode::Setlk => Self::Setlk(Lock::decode(c)?),
            Opcode::Setlkw => Self::Setlkw(Lock::decode(c)?),
            Opcode::Fallocate => Self::Fallocate(Allocate::decode(c)?),
            Opcode::Lseek => Self::Lseek { fh: Fh(c.u64()?), offset: c.u64()?, whence: c.u32()? },
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
                Self::CopyFileRange(CopyRange::decode(c)?)
            }
            Opcode::Ioctl => Self::Ioctl(Ioctl::decode(c)?),
            Opcode::Poll => Self::Poll(Poll::decode(c)?),
            Opcode::Bmap => Self::Bmap { block: c.u64()?, block_size: c.u32()? },
        })
    }
}

fn getattr_handle(c: &mut Cursor<'_>) -> Result<Option<Fh>, Malformed> {
    let flags = c.u32()?;
    c.skip(4)?;
    let fh = Fh(c.u64()?);
    Ok((flags & flag::GETATTR_FH != 0).then_some(fh))
}

fn fsync(c: &mut Cursor<'_>) -> Result<(Fh, bool), Malformed> {
    let fh = Fh(c.u64()?);
    Ok((fh, c.u32()? & flag::FSYNC_DATA_ONLY != 0))
}
