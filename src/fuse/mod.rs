//! The kernel side: mounting, the FUSE protocol, and sessions.
//!
//! Owns how a request reaches a [`FileSystem`] and how its reply gets back: decoding, replies,
//! interrupts, notifications, handing a live mount to another process. Decides nothing about files.
//!
//! [`Mount`] creates a mount and returns the `/dev/fuse` descriptor; [`Session`] serves it.

mod adapter;
mod backing;
mod file_system;
mod mount;
mod protocol;
mod session;

pub use adapter::VfsAdapter;
pub use backing::Backing;
pub use file_system::FileSystem;
pub use fuser::{FopenFlags, InitFlags};
pub use mount::{
    Mount, MountEntry, MountMethod, MountOptions, Unmount, mounted_at, mounts_below, stacked_at,
    unmount,
};
pub use protocol::decode::{
    Allocate, CopyRange, Create, Fh, Ioctl, Lock, Mknod, Open, Poll, Read, ReadDir, Release,
    Rename, Request, SetAttr, SetTime, SetXattr, StatxRequest, Write,
};
pub use protocol::encode::{
    Attributes, CopiedBytes, CreateReply, Entry, IoctlReply, LinkTarget, Listing, ListingPlus,
    LockConflict, Offset, OpenReply, PollEvents, ReadReply, ReplyBody, ReplyBuffers, ReplyFormat,
    Stat, StatfsReply, Statx, WrittenBytes, Xattr,
};
pub use protocol::negotiate::{InitOptions, Negotiated, PlusMode};
pub use session::{
    Leftover, Notification, Notifier, Payload, Reply, RequestMemory, ServedDevice, Session,
    SessionEnd, SessionOptions,
};
