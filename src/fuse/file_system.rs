//! The interface of a file system: one method for each operation of the protocol.
//!
//! Methods run on the thread that received the request and must not block it: replies from memory
//! are sent there, everything else becomes a task by one of the `spawn` methods of [`Reply`].
//! Names, targets and values are bytes in the receive buffer and must be copied to outlive the
//! call, except for the data of a write, which [`Payload::keep`] takes over.

use nix::errno::Errno;

use crate::fuse::protocol::decode::{
    Allocate, CopyRange, Create, Fh, Ioctl, Lock, Mknod, Open, Poll, Read, ReadDir, Release,
    Rename, Request, SetAttr, SetXattr, StatxRequest, Write,
};
use crate::fuse::protocol::encode::{
    Attributes, CopiedBytes, CreateReply, Entry, IoctlReply, LinkTarget, Listing, ListingPlus,
    LockConflict, Offset, OpenReply, PollEvents, ReadReply, StatfsReply, Statx, WrittenBytes,
    Xattr,
};
use crate::fuse::session::{Payload, Reply};
use crate::meta::Ino;

/// The operations of the protocol. `request.ino` is the node; for names, the directory.
///
/// The default implementations reply ENOSYS, which the kernel remembers for most operations: it
/// will not send them again.
pub trait FileSystem: Send + Sync + 'static {
    /// For a name that does not exist, reply ENOENT or [`Entry::absent`].
    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>);

    /// The kernel has forgotten a node after `lookups` replies with it. There is no reply.
    fn forget(&self, ino: Ino, lookups: u64) {
        let _ = (ino, lookups);
    }

    fn getattr(&self, request: &Request, fh: Option<Fh>, reply: Reply<Attributes>);

    fn setattr(&self, request: &Request, change: SetAttr, reply: Reply<Attributes>) {
        let _ = (request, change);
        reply.refuse(Errno::ENOSYS);
    }

    fn statx(&self, request: &Request, ask: StatxRequest, reply: Reply<Statx>) {
        let _ = (request, ask);
        reply.refuse(Errno::ENOSYS);
    }

    fn access(&self, request: &Request, mask: u32, reply: Reply<()>) {
        let _ = (request, mask);
        reply.refuse(Errno::ENOSYS);
    }

    fn readlink(&self, request: &Request, reply: Reply<LinkTarget>) {
        let _ = request;
        reply.refuse(Errno::ENOSYS);
    }

    fn symlink(&self, request: &Request, name: &[u8], target: &[u8], reply: Reply<Entry>) {
        let _ = (request, name, target);
        reply.refuse(Errno::ENOSYS);
    }

    fn mknod(&self, request: &Request, node: Mknod<'_>, reply: Reply<Entry>) {
        let _ = (request, node);
        reply.refuse(Errno::ENOSYS);
    }

    fn mkdir(&self, request: &Request, name: &[u8], mode: u32, umask: u32, reply: Reply<Entry>) {
        let _ = (request, name, mode, umask);
        reply.refuse(Errno::ENOSYS);
    }

    fn unlink(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        let _ = (request, name);
        reply.refuse(Errno::ENOSYS);
    }

    fn rmdir(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        let _ = (request, name);
        reply.refuse(Errno::ENOSYS);
    }

    fn rename(&self, request: &Request, rename: Rename<'_>, reply: Reply<()>) {
        let _ = (request, rename);
        reply.refuse(Errno::ENOSYS);
    }

    /// Gives `node` a name in the directory of the request.
    fn link(&self, request: &Request, node: Ino, name: &[u8], reply: Reply<Entry>) {
        let _ = (request, node, name);
        reply.refuse(Errno::ENOSYS);
    }

    fn open(&self, request: &Request, open: Open, reply: Reply<OpenReply>) {
        let _ = (request, open);
        reply.refuse(Errno::ENOSYS);
    }

    fn create(&self, request: &Request, create: Create<'_>, reply: Reply<CreateReply>) {
        let _ = (request, create);
        reply.refuse(Errno::ENOSYS);
    }

    /// Creates a file without a name in the directory of the request.
    fn tmpfile(&self, request: &Request, create: Create<'_>, reply: Reply<CreateReply>) {
        let _ = (request, create);
        reply.refuse(Errno::ENOSYS);
    }

    fn read(&self, request: &Request, read: Read, reply: Reply<ReadReply>) {
        let _ = (request, read);
        reply.refuse(Errno::ENOSYS);
    }

    fn write(
        &self,
        request: &Request,
        write: Write,
        data: Payload<'_>,
        reply: Reply<WrittenBytes>,
    ) {
        let _ = (request, write, data);
        reply.refuse(Errno::ENOSYS);
    }

    /// Handles the close of one descriptor of an open file.
    fn flush(&self, request: &Request, fh: Fh, lock_owner: u64, reply: Reply<()>) {
        let _ = (request, fh, lock_owner);
        reply.refuse(Errno::ENOSYS);
    }

    /// Handles the close of the last descriptor of an open file. Nobody waits for the reply.
    fn release(&self, request: &Request, release: Release, reply: Reply<()>) {
        let _ = (request, release);
        reply.refuse(Errno::ENOSYS);
    }

    fn fsync(&self, request: &Request, fh: Fh, data_only: bool, reply: Reply<()>) {
        let _ = (request, fh, data_only);
        reply.refuse(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, open: Open, reply: Reply<OpenReply>) {
        let _ = (request, open);
        reply.refuse(Errno::ENOSYS);
    }

    /// An empty listing is the end of the directory.
    fn readdir(&self, request: &Request, read: ReadDir, reply: Reply<Listing>) {
        let _ = (request, read);
        reply.refuse(Errno::ENOSYS);
    }

    fn readdirplus(&self, request: &Request, read: ReadDir, reply: Reply<ListingPlus>) {
        let _ = (request, read);
        reply.refuse(Errno::ENOSYS);
    }

    fn releasedir(&self, request: &Request, release: Release, reply: Reply<()>) {
        let _ = (request, release);
        reply.refuse(Errno::ENOSYS);
    }

    fn fsyncdir(&self, request: &Request, fh: Fh, data_only: bool, reply: Reply<()>) {
        let _ = (request, fh, data_only);
        reply.refuse(Errno::ENOSYS);
    }

    fn statfs(&self, request: &Request, reply: Reply<StatfsReply>) {
        let _ = request;
        reply.refuse(Errno::ENOSYS);
    }

    /// sync(2) of the whole file system; sent only to privileged servers.
    fn syncfs(&self, request: &Request, reply: Reply<()>) {
        let _ = request;
        reply.refuse(Errno::ENOSYS);
    }

    fn setxattr(&self, request: &Request, xattr: SetXattr<'_>, reply: Reply<()>) {
        let _ = (request, xattr);
        reply.refuse(Errno::ENOSYS);
    }

    fn getxattr(&self, request: &Request, name: &[u8], reply: Reply<Xattr>) {
        let _ = (request, name);
        reply.refuse(Errno::ENOSYS);
    }

    fn listxattr(&self, request: &Request, reply: Reply<Xattr>) {
        let _ = request;
        reply.refuse(Errno::ENOSYS);
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        let _ = (request, name);
        reply.refuse(Errno::ENOSYS);
    }

    /// Returns a conflicting lock.
    fn getlk(&self, request: &Request, lock: Lock, reply: Reply<LockConflict>) {
        let _ = (request, lock);
        reply.refuse(Errno::ENOSYS);
    }

    /// Sets or releases a lock; EAGAIN if there is a conflict.
    fn setlk(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        let _ = (request, lock);
        reply.refuse(Errno::ENOSYS);
    }

    /// Waits for a lock.
    fn setlkw(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        let _ = (request, lock);
        reply.refuse(Errno::ENOSYS);
    }

    fn fallocate(&self, request: &Request, allocate: Allocate, reply: Reply<()>) {
        let _ = (request, allocate);
        reply.refuse(Errno::ENOSYS);
    }

    /// Only for data and holes; the kernel handles the other kinds.
    fn lseek(&self, request: &Request, fh: Fh, offset: u64, whence: u32, reply: Reply<Offset>) {
        let _ = (request, fh, offset, whence);
        reply.refuse(Errno::ENOSYS);
    }

    fn copy_file_range(&self, request: &Request, copy: CopyRange, reply: Reply<CopiedBytes>) {
        let _ = (request, copy);
        reply.refuse(Errno::ENOSYS);
    }

    fn ioctl(&self, request: &Request, ioctl: Ioctl<'_>, reply: Reply<IoctlReply>) {
        let _ = (request, ioctl);
        reply.refuse(Errno::ENOSYS);
    }

    fn poll(&self, request: &Request, poll: Poll, reply: Reply<PollEvents>) {
        let _ = (request, poll);
        reply.refuse(Errno::ENOSYS);
    }

    fn bmap(&self, request: &Request, block: u64, block_size: u32, reply: Reply<Offset>) {
        let _ = (request, block, block_size);
        reply.refuse(Errno::ENOSYS);
    }

    /// The mount is gone and there are no more requests. Not called when a session stops and
    /// another continues with its descriptor.
    fn destroy(&self) {}
}
