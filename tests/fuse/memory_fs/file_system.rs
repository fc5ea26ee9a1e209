//! The operations of the protocol.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use jfs::error::{Error, Result};
use jfs::fuse::{
    Allocate, Attributes, CopiedBytes, CopyRange, Create, CreateReply, Entry, Fh, FileSystem,
    FopenFlags, Ioctl, IoctlReply, LinkTarget, Listing, ListingPlus, Lock, LockConflict, Mknod,
    Offset, Open, OpenReply, Payload, Read, ReadDir, ReadReply, Release, Rename, Reply, Request,
    SetAttr, SetXattr, StatfsReply, Statx, StatxRequest, Write, WrittenBytes, Xattr,
};
use jfs::meta::Ino;
use jfs::meta::record::FileKind;

use super::nodes::Node;
use super::{MemoryFs, content, count, names};

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801C_581F;
const XATTR_CREATE: u32 = 1;

/// Tasks need a reference that outlives the call.
pub struct MemoryFileSystem(pub Arc<MemoryFs>);

impl FileSystem for MemoryFileSystem {
    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>) {
        let nodes = self.0.nodes();
        let found = nodes.child(request.ino.0, name);
        reply.send(found.map(|ino| self.0.entry(&nodes, ino)));
    }

    fn forget(&self, _: Ino, lookups: u64) {
        self.0.seen.forgotten.fetch_add(lookups, Ordering::SeqCst);
    }

    fn getattr(&self, request: &Request, _: Option<Fh>, reply: Reply<Attributes>) {
        let nodes = self.0.nodes();
        let found = nodes.get(request.ino.0).map(|_| self.0.attributes(&nodes, request.ino.0));
        reply.send(found);
    }

    fn setattr(&self, request: &Request, change: SetAttr, reply: Reply<Attributes>) {
        let mut nodes = self.0.nodes();
        let done = names::set(&mut nodes, request.ino.0, &change);
        reply.send(done.map(|()| self.0.attributes(&nodes, request.ino.0)));
    }

    fn statx(&self, request: &Request, _: StatxRequest, reply: Reply<Statx>) {
        let stat = self.0.nodes().stat(request.ino.0);
        // Basic stats and the time of birth, which is 42 for all.
        let btime = jfs::meta::Timestamp::from_secs(42);
        let lifetime = *self.0.lifetime.lock().unwrap();
        reply.send(Ok(Statx { stat, mask: 0xFFF, btime, lifetime }));
    }

    fn readlink(&self, request: &Request, reply: Reply<LinkTarget>) {
        let nodes = self.0.nodes();
        let target = nodes.get(request.ino.0).map(|node| Bytes::from(node.content.clone()));
        reply.send(target.map(LinkTarget));
    }

    fn symlink(&self, request: &Request, name: &[u8], target: &[u8], reply: Reply<Entry>) {
        let mut node = Node::new(FileKind::Symlink, 0o777, (request.uid, request.gid));
        node.content = target.to_vec();
        self.made(request, name, node, reply);
    }

    fn mknod(&self, request: &Request, mknod: Mknod<'_>, reply: Reply<Entry>) {
        let mut nodes = self.0.nodes();
        let made = names::make(&mut nodes, request, &mknod);
        reply.send(made.map(|ino| self.0.entry(&nodes, ino)));
    }

    fn mkdir(&self, request: &Request, name: &[u8], mode: u32, _: u32, reply: Reply<Entry>) {
        let node = Node::new(FileKind::Dir, mode, (request.uid, request.gid));
        self.made(request, name, node, reply);
    }

    fn unlink(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.send(names::unlink(&mut self.0.nodes(), request.ino.0, name, false));
    }

    fn rmdir(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.send(names::unlink(&mut self.0.nodes(), request.ino.0, name, true));
    }

    fn rename(&self, request: &Request, rename: Rename<'_>, reply: Reply<()>) {
        reply.send(names::rename(&mut self.0.nodes(), request.ino.0, &rename));
    }

    fn link(&self, request: &Request, node: Ino, name: &[u8], reply: Reply<Entry>) {
        let mut nodes = self.0.nodes();
        let linked = names::link(&mut nodes, node.0, request.ino.0, name);
        reply.send(linked.map(|()| self.0.entry(&nodes, node.0)));
    }

    fn open(&self, request: &Request, _: Open, reply: Reply<OpenReply>) {
        let nodes = self.0.nodes();
        reply.send(nodes.get(request.ino.0).map(|node| {
            let mut opened = OpenReply::new(Fh(7));
            opened.backing = node.backing;
            opened.flags.set(FopenFlags::FOPEN_PASSTHROUGH, node.backing.is_some());
            opened
        }));
    }

    fn create(&self, request: &Request, create: Create<'_>, reply: Reply<CreateReply>) {
        let node = Node::new(FileKind::File, create.mode, (request.uid, request.gid));
        let mut nodes = self.0.nodes();
        let made = nodes.add(request.ino.0, create.name, node);
        let opened = OpenReply::new(Fh(7));
        reply.send(made.map(|ino| CreateReply { entry: self.0.entry(&nodes, ino), opened }));
    }

    fn tmpfile(&self, request: &Request, create: Create<'_>, reply: Reply<CreateReply>) {
        let mut node = Node::new(FileKind::File, create.mode, (request.uid, request.gid));
        node.nlink = 0;
        let mut nodes = self.0.nodes();
        let ino = nodes.add_nameless(node);
        let opened = OpenReply::new(Fh(7));
        reply.send(Ok(CreateReply { entry: self.0.entry(&nodes, ino), opened }));
    }

    fn read(&self, request: &Request, read: Read, reply: Reply<ReadReply>) {
        let seen = &self.0.seen;
        count(&seen.reads);
        seen.largest_read.fetch_max(read.size, Ordering::SeqCst);
        if request.is_resent() {
            count(&seen.resent);
        }
        self.0.answer_read(request.ino.0, &read, reply);
    }

    fn write(
        &self,
        request: &Request,
        write: Write,
        data: Payload<'_>,
        reply: Reply<WrittenBytes>,
    ) {
        count(&self.0.seen.writes);
        self.0.seen.largest_write.fetch_max(write.size, Ordering::SeqCst);
        let ino = request.ino.0;
        if self.0.nodes().get(ino).is_ok_and(|node| node.behaviour == super::Behaviour::Task) {
            let (fs, data) = (Arc::clone(&self.0), data.keep());
            reply.spawn(async move {
                tokio::task::yield_now().await;
                content::put(fs.nodes().file_mut(ino)?, write.offset, &data);
                Ok(WrittenBytes(write.size))
            });
            return;
        }
        let mut nodes = self.0.nodes();
        let file = nodes.file_mut(ino);
        reply.send(file.map(|file| {
            content::put(file, write.offset, data.as_slice());
            WrittenBytes(write.size)
        }));
    }

    fn flush(&self, request: &Request, _: Fh, lock_owner: u64, reply: Reply<()>) {
        self.0.drop_locks(request.ino.0, lock_owner, false);
        reply.send(Ok(()));
    }

    fn release(&self, request: &Request, release: Release, reply: Reply<()>) {
        count(&self.0.seen.released);
        if release.flock_unlock {
            self.0.drop_locks(request.ino.0, release.lock_owner, true);
        }
        reply.send(Ok(()));
    }

    fn fsync(&self, _: &Request, _: Fh, _: bool, reply: Reply<()>) {
        reply.send(Ok(()));
    }

    fn opendir(&self, _: &Request, _: Open, reply: Reply<OpenReply>) {
        reply.send(Ok(OpenReply::new(Fh(9))));
    }

    fn readdir(&self, request: &Request, read: ReadDir, reply: Reply<Listing>) {
        reply.send(self.0.list(request.ino.0, read));
    }

    fn readdirplus(&self, request: &Request, read: ReadDir, reply: Reply<ListingPlus>) {
        count(&self.0.seen.plus);
        reply.send(self.0.list_plus(request.ino.0, read));
    }

    fn releasedir(&self, _: &Request, _: Release, reply: Reply<()>) {
        reply.send(Ok(()));
    }

    fn fsyncdir(&self, _: &Request, _: Fh, _: bool, reply: Reply<()>) {
        reply.send(Ok(()));
    }

    fn statfs(&self, _: &Request, reply: Reply<StatfsReply>) {
        reply.send(Ok(StatfsReply {
            block_size: 4096,
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            files: 77,
            files_free: 66,
            name_max: 255,
        }));
    }

    fn setxattr(&self, request: &Request, xattr: SetXattr<'_>, reply: Reply<()>) {
        let mut nodes = self.0.nodes();
        let result = nodes.get_mut(request.ino.0).and_then(|node| {
            if xattr.flags & XATTR_CREATE != 0 && node.xattrs.contains_key(xattr.name) {
                return Err(Error::Exists);
            }
            node.xattrs.insert(xattr.name.to_vec(), xattr.value.to_vec());
            Ok(())
        });
        reply.send(result);
    }

    fn getxattr(&self, request: &Request, name: &[u8], reply: Reply<Xattr>) {
        let nodes = self.0.nodes();
        let node = nodes.get(request.ino.0);
        let value = node.and_then(|node| node.xattrs.get(name).ok_or(Error::NoAttribute));
        reply.send(value.map(|value| Xattr(Bytes::copy_from_slice(value))));
    }

    fn listxattr(&self, request: &Request, reply: Reply<Xattr>) {
        let nodes = self.0.nodes();
        let names = nodes.get(request.ino.0).map(|node| {
            node.xattrs.keys().flat_map(|name| [name.as_slice(), &[0]].concat()).collect()
        });
        reply.send(names.map(Xattr));
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        let mut nodes = self.0.nodes();
        let node = nodes.get_mut(request.ino.0);
        reply.send(
            node.and_then(|node| node.xattrs.remove(name).map(drop).ok_or(Error::NoAttribute)),
        );
    }

    fn getlk(&self, request: &Request, lock: Lock, reply: Reply<LockConflict>) {
        reply.send(self.0.held(request.ino.0, &lock));
    }

    fn setlk(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        reply.send(self.0.set_lock(request.ino.0, &lock));
    }

    fn setlkw(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        count(&self.0.seen.waiting);
        let (fs, ino) = (Arc::clone(&self.0), request.ino.0);
        reply.spawn_abortable(async move { fs.wait_for_lock(ino, lock).await });
    }

    fn fallocate(&self, request: &Request, allocate: Allocate, reply: Reply<()>) {
        let mut nodes = self.0.nodes();
        let file = nodes.file_mut(request.ino.0);
        reply.send(file.and_then(|file| content::allocate(file, &allocate)));
    }

    fn lseek(&self, request: &Request, _: Fh, offset: u64, whence: u32, reply: Reply<Offset>) {
        let mut nodes = self.0.nodes();
        let file = nodes.file_mut(request.ino.0);
        reply.send(file.and_then(|file| content::seek(file, offset, whence)).map(Offset));
    }

    fn copy_file_range(&self, request: &Request, copy: CopyRange, reply: Reply<CopiedBytes>) {
        reply.send(content::copy(&mut self.0.nodes(), request.ino.0, &copy).map(CopiedBytes));
    }

    fn ioctl(&self, request: &Request, ioctl: Ioctl<'_>, reply: Reply<IoctlReply>) {
        let mut nodes = self.0.nodes();
        let done = nodes.get_mut(request.ino.0).and_then(|node| flags(node, &ioctl));
        reply.send(done.map(|output| IoctlReply { result: 0, output }));
    }

    fn destroy(&self) {
        self.0.seen.destroyed.store(true, Ordering::SeqCst);
    }
}

impl MemoryFileSystem {
    fn made(&self, request: &Request, name: &[u8], node: Node, reply: Reply<Entry>) {
        let mut nodes = self.0.nodes();
        let made = nodes.add(request.ino.0, name, node);
        reply.send(made.map(|ino| self.0.entry(&nodes, ino)));
    }
}

fn flags(node: &mut Node, ioctl: &Ioctl<'_>) -> Result<Bytes> {
    match ioctl.command {
        GETFLAGS => {
            let mut output = node.flags.to_ne_bytes().to_vec();
            output.resize(ioctl.output_size as usize, 0);
            Ok(output.into())
        }
        // The kernel reads it before it sets flags; nothing in it is used.
        FSGETXATTR => Ok(vec![0; ioctl.output_size as usize].into()),
        SETFLAGS => {
            let value = ioctl.input.first_chunk::<4>().ok_or(Error::Invalid)?;
            node.flags = u32::from_ne_bytes(*value);
            Ok(Bytes::new())
        }
        _ => Err(Error::NotSupported),
    }
}
