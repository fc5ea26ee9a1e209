//! The numbers of the kernel's FUSE protocol, up to 7.45 (Linux 6.18).
//!
//! The layout of each request is in [`decode`](super::decode), that of each reply in
//! [`encode`](super::encode). All integers are in the machine's own byte order.

/// The protocol version that this session speaks.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 45;
/// Older kernels (before Linux 4.20) have smaller structures and no requests above 128 KiB.
pub const OLDEST_MINOR: u32 = 28;

/// Length of the header of every request.
pub const IN_HEADER: usize = 40;
/// Length of the header of every reply and notification.
pub const OUT_HEADER: usize = 16;
/// Length of the arguments between the header of a write and its data.
pub const WRITE_IN: usize = 40;
/// Marks the number of an INTERRUPT, which is otherwise that of the request it names.
pub const INTERRUPT_REPLY: u64 = 1;
/// Marks a request that the kernel has queued again after [`notify::RESEND`].
pub const RESENT: u64 = 1 << 63;

/// Length of `fuse_attr`.
pub const ATTR: usize = 88;
/// Length of `fuse_entry_out`.
pub const ENTRY_OUT: usize = 40 + ATTR;
/// Length of a `fuse_dirent` before its name.
pub const DIRENT: usize = 24;

macro_rules! opcodes {
    ($($name:ident = $code:literal,)*) => {
        /// The operation of a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode { $($name = $code,)* }

        impl Opcode {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn from_u32(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Flush = 25,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Getlk = 31,
    Setlk = 32,
    Setlkw = 33,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Bmap = 37,
    Destroy = 38,
    Ioctl = 39,
    Poll = 40,
    NotifyReply = 41,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    Syncfs = 50,
    Tmpfile = 51,
    Statx = 52,
    CopyFileRange64 = 53,
}

/// Which fields of a setattr are valid.
pub mod fattr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCK_OWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flag words inside requests.
pub mod flag {
    pub const GETATTR_FH: u32 = 1;
    pub const LK_FLOCK: u32 = 1;
    pub const READ_LOCK_OWNER: u32 = 1 << 1;
    pub const WRITE_CACHE: u32 = 1;
    pub const WRITE_LOCK_OWNER: u32 = 1 << 1;
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    pub const OPEN_KILL_SUIDGID: u32 = 1;
    pub const RELEASE_FLUSH: u32 = 1;
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub const FSYNC_DATA_ONLY: u32 = 1;
    pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
    pub const INVAL_ENTRY_EXPIRE_ONLY: u32 = 1;
}

/// The codes of notifications.
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const DELETE: i32 = 6;
    pub const RESEND: i32 = 7;
}
