//! One operation on a volume, by path: the same for a mount of the Go client and for our client.

/// Paths begin with a slash; the volume's root is `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Mkdir(String, u16),
    File(String, u16),
    Mknod(String, NodeType, u16),
    Symlink {
        target: String,
        path: String,
    },
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameFlag),
    Chmod(String, u16),
    Chown(String, u32, u32),
    /// Access and modification time, in nanoseconds since 1970.
    Times(String, u64, u64),
    SetXattr(String, String, String, Xattr),
    RemoveXattr(String, String),
    /// The ACL in the kernel's format; empty removes it.
    SetAcl(String, Acl, Vec<u8>),
    Truncate(String, u64),
    Fallocate(String, Allocate, u64, u64),
    /// Source, its offset, destination, its offset, length.
    Copy(String, u64, String, u64, u64),
    /// At most one kernel write (128 KiB) within one chunk, so that it becomes one slice.
    Write(String, u64, u32),
    Clone {
        from: String,
        to: String,
        preserve: bool,
    },
    /// By another user.
    As(u32, u32, Box<Step>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeType {
    Fifo,
    Socket,
    /// A device with this number.
    Char(u32),
    Block(u32),
    /// A regular file, not opened.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameFlag {
    Replace,
    NoReplace,
    Exchange,
    Whiteout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xattr {
    Any,
    Create,
    Replace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acl {
    Access,
    Default,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    Grow,
    Keep,
    Punch,
    Zero,
    ZeroKeep,
}

/// Returns the bytes to write: different for every offset and length, the same for both clients.
pub fn content(off: u64, len: u32) -> Vec<u8> {
    let seed = off.wrapping_mul(31).wrapping_add(u64::from(len));
    (0..u64::from(len)).map(|i| (seed.wrapping_add(i * 7) % 251) as u8).collect()
}

/// Returns an ACL in the kernel's format, of (tag, permission, id).
pub fn acl(entries: &[(u16, u16, Option<u32>)]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.unwrap_or(u32::MAX).to_le_bytes());
    }
    out
}

pub const USER_OBJ: u16 = 1;
pub const USER: u16 = 2;
pub const GROUP_OBJ: u16 = 4;
pub const GROUP: u16 = 8;
pub const MASK: u16 = 0x10;
pub const OTHER: u16 = 0x20;
