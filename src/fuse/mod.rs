//! The kernel side: mounting, the FUSE protocol, and the session that speaks it.
//!
//! Owns how a question reaches a [`FileSystem`] and how its answer gets back: decoding, replies,
//! interrupts, notifications, handing a live mount to another process. Decides nothing about files.
//!
//! [`Mount`] makes the mount and yields the descriptor of `/dev/fuse`; [`Session`] serves it.

mod abi;
mod answer;
mod backing;
mod buffer;
mod caller;
mod decode;
mod device;
mod dispatch;
mod file_system;
mod head;
mod interrupt;
mod link;
mod load;
mod mount;
mod negotiate;
mod notify;
mod reply;
mod serve;
mod session;

pub use answer::{
    Answer, Asked, Attributes, Content, Copied, Created, Entry, Held, IoctlDone, Linked, Listing,
    ListingPlus, Offset, Opened, Parts, Ready, Space, Stat, Statx, Written, Xattr,
};
pub use backing::Backing;
pub use buffer::Payload;
pub use decode::{
    Allocate, CopyRange, Create, Fh, Ioctl, Lock, Mknod, Open, Poll, Read, ReadDir, Release,
    Rename, Request, SetAttr, SetTime, SetXattr, StatxAsk, Write,
};
pub use file_system::FileSystem;
pub use fuser::{FopenFlags, InitFlags};
pub use load::RequestMemory;
pub use mount::{
    Mount, MountOptions, Mounted, Unmount, Way, mounted_at, mounts_below, stacked_at, unmount,
};
pub use negotiate::{Agreed, PlusMode, Wishes};
pub use notify::{Notification, Notifier};
pub use reply::Reply;
pub use serve::Served;
pub use session::{End, Leftover, Session, Setup};
