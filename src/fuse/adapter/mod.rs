//! Implements the protocol's operations on a [`Vfs`].
//!
//! Decides nothing about files: converts arguments and results, and knows which work can be
//! abandoned when its caller is interrupted. Replies from memory are sent at once.

mod attributes;
mod call;
mod convert;
mod dirs;
mod entries;
mod files;
mod invalidate;
mod ioctl;
mod listing;
mod locks;
mod log_format;

use std::sync::{Arc, OnceLock};

use crate::fuse::file_system::FileSystem;
use crate::fuse::protocol::decode::{
    Allocate, CopyRange, Create, Ioctl, Lock, Mknod, Open, Read, ReadDir, Release, Rename, Request,
    SetAttr, SetXattr, Write,
};
use crate::fuse::protocol::encode::{
    Attributes, CopiedBytes, CreateReply, Entry, IoctlReply, LinkTarget, Listing, ListingPlus,
    LockConflict, Offset, OpenReply, ReadReply, StatfsReply, WrittenBytes, Xattr,
};
use crate::fuse::session::{Notifier, Payload, Reply};
use crate::meta::Ino;
use crate::vfs::{Fh, Vfs};
use call::Call;
use invalidate::KernelInvalidator;

/// A mounted [`Vfs`].
pub struct VfsAdapter {
    vfs: Arc<Vfs>,
    /// Set once the session has started.
    notifier: Arc<OnceLock<Notifier>>,
}

impl VfsAdapter {
    pub fn new(vfs: Arc<Vfs>) -> Self {
        Self { vfs, notifier: Arc::default() }
    }

    /// Connects the kernel: from now on it receives invalidations.
    pub fn connect_kernel(&self, notifier: &Notifier) {
        self.vfs.invalidator().connect(Box::new(KernelInvalidator {
            notifier: notifier.clone(),
            root: self.vfs.root(),
        }));
        let _ = self.notifier.set(notifier.clone());
    }

    /// Returns the inode that the kernel refers to.
    fn node(&self, number: Ino) -> Ino {
        convert::from_kernel(self.vfs.root(), number)
    }

    fn call(&self, method: &'static str, request: &Request, args: impl FnOnce() -> String) -> Call {
        Call::new(&self.vfs, method, request, args)
    }
}

impl FileSystem for VfsAdapter {
    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>) {
        entries::lookup(self, request, name, reply);
    }

    fn forget(&self, ino: Ino, _: u64) {
        self.vfs.forget(self.node(ino));
    }

    fn getattr(&self, request: &Request, _: Option<Fh>, reply: Reply<Attributes>) {
        attributes::getattr(self, request, reply);
    }

    fn setattr(&self, request: &Request, change: SetAttr, reply: Reply<Attributes>) {
        attributes::setattr(self, request, change, reply);
    }

    fn access(&self, request: &Request, mask: u32, reply: Reply<()>) {
        attributes::access(self, request, mask, reply);
    }

    fn readlink(&self, request: &Request, reply: Reply<LinkTarget>) {
        entries::readlink(self, request, reply);
    }

    fn symlink(&self, request: &Request, name: &[u8], target: &[u8], reply: Reply<Entry>) {
        entries::symlink(self, request, name, target, reply);
    }

    fn mknod(&self, request: &Request, node: Mknod<'_>, reply: Reply<Entry>) {
        entries::mknod(self, request, node, reply);
    }

    fn mkdir(&self, request: &Request, name: &[u8], mode: u32, umask: u32, reply: Reply<Entry>) {
        entries::mkdir(self, request, name, mode, umask, reply);
    }

    fn unlink(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        entries::unlink(self, request, name, reply);
    }

    fn rmdir(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        entries::rmdir(self, request, name, reply);
    }

    fn rename(&self, request: &Request, rename: Rename<'_>, reply: Reply<()>) {
        entries::rename(self, request, rename, reply);
    }

    fn link(&self, request: &Request, node: Ino, name: &[u8], reply: Reply<Entry>) {
        entries::link(self, request, node, name, reply);
    }

    fn open(&self, request: &Request, open: Open, reply: Reply<OpenReply>) {
        files::open(self, request, open, reply);
    }

    fn create(&self, request: &Request, create: Create<'_>, reply: Reply<CreateReply>) {
        files::create(self, request, create, reply);
    }

    fn tmpfile(&self, request: &Request, create: Create<'_>, reply: Reply<CreateReply>) {
        files::tmpfile(self, request, create, reply);
    }

    fn read(&self, request: &Request, read: Read, reply: Reply<ReadReply>) {
        files::read(self, request, read, reply);
    }

    fn write(
        &self,
        request: &Request,
        write: Write,
        data: Payload<'_>,
        reply: Reply<WrittenBytes>,
    ) {
        files::write(self, request, write, data, reply);
    }

    fn flush(&self, request: &Request, fh: Fh, lock_owner: u64, reply: Reply<()>) {
        files::flush(self, request, fh, lock_owner, reply);
    }

    fn release(&self, request: &Request, release: Release, reply: Reply<()>) {
        files::release(self, request, release, reply);
    }

    fn fsync(&self, request: &Request, fh: Fh, data_only: bool, reply: Reply<()>) {
        files::fsync(self, request, fh, data_only, reply);
    }

    fn opendir(&self, request: &Request, _: Open, reply: Reply<OpenReply>) {
        dirs::opendir(self, request, reply);
    }

    fn readdir(&self, request: &Request, read: ReadDir, reply: Reply<Listing>) {
        dirs::readdir(self, request, read, reply);
    }

    fn readdirplus(&self, request: &Request, read: ReadDir, reply: Reply<ListingPlus>) {
        dirs::readdirplus(self, request, read, reply);
    }

    fn releasedir(&self, request: &Request, release: Release, reply: Reply<()>) {
        dirs::releasedir(self, request, release, reply);
    }

    fn fsyncdir(&self, request: &Request, _: Fh, _: bool, reply: Reply<()>) {
        dirs::fsyncdir(self, request, reply);
    }

    fn statfs(&self, request: &Request, reply: Reply<StatfsReply>) {
        attributes::statfs(self, request, reply);
    }

    fn setxattr(&self, request: &Request, xattr: SetXattr<'_>, reply: Reply<()>) {
        attributes::setxattr(self, request, xattr, reply);
    }

    fn getxattr(&self, request: &Request, name: &[u8], reply: Reply<Xattr>) {
        attributes::getxattr(self, request, name, reply);
    }

    fn listxattr(&self, request: &Request, reply: Reply<Xattr>) {
        attributes::listxattr(self, request, reply);
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        attributes::removexattr(self, request, name, reply);
    }

    fn getlk(&self, request: &Request, lock: Lock, reply: Reply<LockConflict>) {
        locks::getlk(self, request, lock, reply);
    }

    fn setlk(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        locks::set(self, request, lock, false, reply);
    }

    fn setlkw(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        locks::set(self, request, lock, true, reply);
    }

    fn fallocate(&self, request: &Request, allocate: Allocate, reply: Reply<()>) {
        files::fallocate(self, request, allocate, reply);
    }

    fn lseek(&self, request: &Request, _: Fh, offset: u64, whence: u32, reply: Reply<Offset>) {
        files::lseek(self, request, offset, whence, reply);
    }

    fn copy_file_range(&self, request: &Request, copy: CopyRange, reply: Reply<CopiedBytes>) {
        files::copy_file_range(self, request, copy, reply);
    }

    fn ioctl(&self, request: &Request, ioctl: Ioctl<'_>, reply: Reply<IoctlReply>) {
        attributes::ioctl(self, request, ioctl, reply);
    }
}
