//! What a file system must be able to do to be mounted: one method for each thing the kernel asks.
//!
//! Methods run on the thread that received the request and must not block it: what memory can
//! answer is answered there, all else becomes a task by one of the `spawn` methods of [`Reply`].
//! Names, targets and values are bytes in the receive buffer; what outlives the call copies them,
//! but for the data of a write, which [`Payload::keep`] hands over.

use nix::errno::Errno;

use super::answer::{
    Attributes, Content, Copied, Created, Entry, Held, IoctlDone, Linked, Listing, ListingPlus,
    Offset, Opened, Ready, Space, Statx, Written, Xattr,
};
use super::buffer::Payload;
use super::decode::{
    Allocate, CopyRange, Create, Fh, Ioctl, Lock, Mknod, Open, Poll, Read, ReadDir, Release,
    Rename, Request, SetAttr, SetXattr, StatxAsk, Write,
};
use super::reply::Reply;
use crate::meta::Ino;

/// The kernel's questions. `request.ino` is the node that is asked about; for names, the directory.
///
/// What is left out answers ENOSYS, which the kernel remembers for most of them: it will not ask
/// again.
pub trait FileSystem: Send + Sync + 'static {
    /// A name that does not exist may be answered with ENOENT or with [`Entry::absent`].
    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>);

    /// The kernel has dropped a node that it had been answered `lookups` times. There is no reply.
    fn forget(&self, ino: Ino, lookups: u64) {
        let _ = (ino, lookups);
    }

    fn getattr(&self, request: &Request, fh: Option<Fh>, reply: Reply<Attributes>);

    fn setattr(&self, request: &Request, change: SetAttr, reply: Reply<Attributes>) {
        let _ = (request, change);
        reply.refuse(Errno::ENOSYS);
    }

    fn statx(&self, request: &Request, ask: StatxAsk, reply: Reply<Statx>) {
        let _ = (request, ask);
        reply.refuse(Errno::ENOSYS);
    }

    fn access(&self, request: &Request, mask: u32, reply: Reply<()>) {
        let _ = (request, mask);
        reply.refuse(Errno::ENOSYS);
    }

    fn readlink(&self, request: &Request, reply: Reply<Linked>) {
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

    fn open(&self, request: &Request, open: Open, reply: Reply<Opened>) {
        let _ = (request, open);
        reply.refuse(Errno::ENOSYS);
    }

    fn create(&self, request: &Request, create: Create<'_>, reply: Reply<Created>) {
        let _ = (request, create);
        reply.refuse(Errno::ENOSYS);
    }

    /// Makes a file without a name, in the directory of the request.
    fn tmpfile(&self, request: &Request, create: Create<'_>, reply: Reply<Created>) {
        let _ = (request, create);
        reply.refuse(Errno::ENOSYS);
    }

    fn read(&self, request: &Request, read: Read, reply: Reply<Content>) {
        let _ = (request, read);
        reply.refuse(Errno::ENOSYS);
    }

    fn write(&self, request: &Request, write: Write, data: Payload<'_>, reply: Reply<Written>) {
        let _ = (request, write, data);
        reply.refuse(Errno::ENOSYS);
    }

    /// One of the descriptors of an open file was closed.
    fn flush(&self, request: &Request, fh: Fh, lock_owner: u64, reply: Reply<()>) {
        let _ = (request, fh, lock_owner);
        reply.refuse(Errno::ENOSYS);
    }

    /// The last descriptor of an open file was closed. Nobody waits for the answer.
    fn release(&self, request: &Request, release: Release, reply: Reply<()>) {
        let _ = (request, release);
        reply.refuse(Errno::ENOSYS);
    }

    fn fsync(&self, request: &Request, fh: Fh, data_only: bool, reply: Reply<()>) {
        let _ = (request, fh, data_only);
        reply.refuse(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, open: Open, reply: Reply<Opened>) {
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

    fn statfs(&self, request: &Request, reply: Reply<Space>) {
        let _ = request;
        reply.refuse(Errno::ENOSYS);
    }

    /// sync(2) of the whole file system; the kernel asks only privileged servers.
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

    /// What is in the way of a lock.
    fn getlk(&self, request: &Request, lock: Lock, reply: Reply<Held>) {
        let _ = (request, lock);
        reply.refuse(Errno::ENOSYS);
    }

    /// Takes or gives up a lock; EAGAIN if it cannot be had now.
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

    /// Only for holes and data; the kernel does the other kinds.
    fn lseek(&self, request: &Request, fh: Fh, offset: u64, whence: u32, reply: Reply<Offset>) {
        let _ = (request, fh, offset, whence);
        reply.refuse(Errno::ENOSYS);
    }

    fn copy_file_range(&self, request: &Request, copy: CopyRange, reply: Reply<Copied>) {
        let _ = (request, copy);
        reply.refuse(Errno::ENOSYS);
    }

    fn ioctl(&self, request: &Request, ioctl: Ioctl<'_>, reply: Reply<IoctlDone>) {
        let _ = (request, ioctl);
        reply.refuse(Errno::ENOSYS);
    }

    fn poll(&self, request: &Request, poll: Poll, reply: Reply<Ready>) {
        let _ = (request, poll);
        reply.refuse(Errno::ENOSYS);
    }

    fn bmap(&self, request: &Request, block: u64, block_size: u32, reply: Reply<Offset>) {
        let _ = (request, block, block_size);
        reply.refuse(Errno::ENOSYS);
    }

    /// The mount is gone; nothing more will be asked. Not called when a session only stops and
    /// another goes on with its descriptor.
    fn destroy(&self) {}
}
