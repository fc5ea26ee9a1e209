//! The kernel's questions, answered by a [`Vfs`].
//!
//! Decides nothing about files: it turns arguments and answers into each other's form, and knows
//! which work may be abandoned when its caller is interrupted. What memory can answer is answered
//! on the spot.

mod ask;
mod ioctl;
mod listing;
mod notices;
mod numbers;
mod show;
mod stat;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fuser::FopenFlags;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::answer::{
    Attributes, Content, Copied, Created, Entry, Held, IoctlDone, Linked, Listing, ListingPlus,
    Offset, Opened, Space, Written, Xattr,
};
use super::buffer::Payload;
use super::decode::{
    Allocate, CopyRange, Create, Ioctl, Lock, Mknod, Open, Read, ReadDir, Release, Rename, Request,
    SetAttr, SetTime, SetXattr, Write,
};
use super::file_system::FileSystem;
use super::notify::{Notification, Notifier};
use super::reply::Reply;
use crate::error::{Error, Result};
use crate::meta::{AttrSet, Ino, NodeKind, TimeSet};
use crate::vfs::{Fh, NodeChange, OpenedNode, Seek, Vfs};
use ask::Ask;
use notices::ToKernel;
use stat::{kind_of, permissions};

const BLOCK: u64 = 4096;
const NAME_MAX: u32 = 255;
/// lseek(2) looks for these here; the kernel does the other kinds itself.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Longer copies are asked for in parts: the older form of the answer has 32 bits.
const MAX_COPY: u64 = (1 << 32) - (64 << 20);

/// A mounted [`Vfs`].
pub struct Served {
    vfs: Arc<Vfs>,
    /// There once the session has begun.
    notifier: Arc<OnceLock<Notifier>>,
}

impl Served {
    pub fn new(vfs: Arc<Vfs>) -> Self {
        Self { vfs, notifier: Arc::default() }
    }

    /// From now on the kernel is told what it must not keep.
    pub fn notify_by(&self, notifier: &Notifier) {
        self.vfs
            .notices()
            .go_to(Box::new(ToKernel { notifier: notifier.clone(), root: self.vfs.root() }));
        let _ = self.notifier.set(notifier.clone());
    }

    /// The node that the kernel means.
    fn node(&self, number: Ino) -> Ino {
        numbers::from_kernel(self.vfs.root(), number)
    }

    fn ask(&self, method: &'static str, request: &Request, args: impl FnOnce() -> String) -> Ask {
        Ask::new(&self.vfs, method, request, args)
    }
}

impl FileSystem for Served {
    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>) {
        let dir = self.node(request.ino);
        let ask = self.ask("lookup", request, || format!("{dir},{}", show::name(name)));
        let name = Bytes::copy_from_slice(name);
        reply.spawn_abortable(async move {
            let found = ask.vfs.lookup(&ask.caller, dir, &name).await;
            ask.found(found)
        });
    }

    fn forget(&self, ino: Ino, _: u64) {
        self.vfs.forget(self.node(ino));
    }

    fn getattr(&self, request: &Request, _: Option<Fh>, reply: Reply<Attributes>) {
        let ino = self.node(request.ino);
        let ask = self.ask("getattr", request, || ino.to_string());
        reply.spawn_abortable(async move {
            let aged = ask.vfs.getattr_aged(ino).await;
            let age = aged.as_ref().map_or(Duration::ZERO, |(_, age)| *age);
            let attributes = ask.attributes(ino, aged.map(|(attr, _)| attr))?;
            let lifetime = attributes.lifetime.saturating_sub(age);
            Ok(Attributes { lifetime, ..attributes })
        });
    }

    fn setattr(&self, request: &Request, change: SetAttr, reply: Reply<Attributes>) {
        let ino = self.node(request.ino);
        let ask = self.ask("setattr", request, || format!("{ino},{change:?}"));
        let change = node_change(&change);
        let work = async move {
            let attr = ask.vfs.setattr(&ask.caller, ino, change).await;
            ask.attributes(ino, attr)
        };
        reply.spawn_detachable(work, drop);
    }

    fn access(&self, request: &Request, mask: u32, reply: Reply<()>) {
        if !self.vfs.options().check_permissions {
            // The kernel has looked itself, and need not ask again.
            reply.refuse(Errno::ENOSYS);
            return;
        }
        let ino = self.node(request.ino);
        let ask = self.ask("access", request, || format!("{ino},0x{mask:x}"));
        let mask = u16::try_from(mask & 7).unwrap_or_default();
        reply.spawn_abortable(async move {
            let allowed = ask.vfs.access(&ask.caller, ino, mask).await;
            ask.done(allowed)
        });
    }

    fn readlink(&self, request: &Request, reply: Reply<Linked>) {
        let ino = self.node(request.ino);
        let ask = self.ask("readlink", request, || ino.to_string());
        reply.spawn_abortable(async move {
            let target = ask.vfs.readlink(ino).await;
            ask.end(target, |target| format!("({})", show::name(target))).map(Linked)
        });
    }

    fn symlink(&self, request: &Request, name: &[u8], target: &[u8], reply: Reply<Entry>) {
        let dir = self.node(request.ino);
        let args = || format!("{dir},{},{}", show::name(name), show::name(target));
        let ask = self.ask("symlink", request, args);
        let (name, target) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(target));
        let work = async move {
            let made = ask.vfs.symlink(&ask.caller, (dir, &name), target).await;
            ask.entry(made)
        };
        reply.spawn_detachable(work, drop);
    }

    fn mknod(&self, request: &Request, node: Mknod<'_>, reply: Reply<Entry>) {
        let Mknod { name, mode, rdev, umask } = node;
        let dir = self.node(request.ino);
        let args = || format!("{dir},{},{},0x{rdev:08X}", show::name(name), show::mode(mode));
        let ask = self.ask("mknod", request, args);
        let Some(kind) = kind_of(mode) else {
            reply.send(Err(Error::Invalid));
            return;
        };
        let (name, modes) = (Bytes::copy_from_slice(name), (permissions(mode), permissions(umask)));
        let work = async move {
            let node = NodeKind { kind, rdev };
            let made = ask.vfs.mknod(&ask.caller, (dir, &name), node, modes).await;
            ask.entry(made)
        };
        reply.spawn_detachable(work, drop);
    }

    fn mkdir(&self, request: &Request, name: &[u8], mode: u32, umask: u32, reply: Reply<Entry>) {
        let dir = self.node(request.ino);
        let args = || format!("{dir},{},{}", show::name(name), show::mode(mode));
        let ask = self.ask("mkdir", request, args);
        let (name, modes) = (Bytes::copy_from_slice(name), (permissions(mode), permissions(umask)));
        let work = async move {
            let made = ask.vfs.mkdir(&ask.caller, (dir, &name), modes).await;
            ask.entry(made)
        };
        reply.spawn_detachable(work, drop);
    }

    fn unlink(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        let dir = self.node(request.ino);
        let ask = self.ask("unlink", request, || format!("{dir},{}", show::name(name)));
        let name = Bytes::copy_from_slice(name);
        let work = async move {
            let gone = ask.vfs.unlink(&ask.caller, dir, &name).await;
            ask.done(gone)
        };
        reply.spawn_detachable(work, drop);
    }

    fn rmdir(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        let dir = self.node(request.ino);
        let ask = self.ask("rmdir", request, || format!("{dir},{}", show::name(name)));
        let name = Bytes::copy_from_slice(name);
        let work = async move {
            let gone = ask.vfs.rmdir(&ask.caller, dir, &name).await;
            ask.done(gone)
        };
        reply.spawn_detachable(work, drop);
    }

    fn rename(&self, request: &Request, rename: Rename<'_>, reply: Reply<()>) {
        let Rename { name, new_dir, new_name, flags } = rename;
        let new_dir = self.node(new_dir);
        let dir = self.node(request.ino);
        let ask = self.ask("rename", request, || {
            let (old, new) = (show::name(name), show::name(new_name));
            format!("{dir},{old},{new_dir},{new},{flags}")
        });
        let (old, new) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(new_name));
        let work = async move {
            let moved = ask.vfs.rename(&ask.caller, (dir, &old), (new_dir, &new), flags).await;
            ask.done(moved)
        };
        reply.spawn_detachable(work, drop);
    }

    fn link(&self, request: &Request, node: Ino, name: &[u8], reply: Reply<Entry>) {
        let dir = self.node(request.ino);
        let ask = self.ask("link", request, || format!("{node},{dir},{}", show::name(name)));
        let name = Bytes::copy_from_slice(name);
        let work = async move {
            let linked = ask.vfs.link(&ask.caller, node, (dir, &name)).await;
            ask.entry(linked)
        };
        reply.spawn_detachable(work, drop);
    }

    fn open(&self, request: &Request, open: Open, reply: Reply<Opened>) {
        let (ino, flags) = (self.node(request.ino), open_flags(open.flags));
        let ask = self.ask("open", request, || format!("{ino},0x{:X}", open.flags));
        let (vfs, notifier) = (Arc::clone(&self.vfs), Arc::clone(&self.notifier));
        let work = async move {
            let opened = ask.vfs.open(&ask.caller, ino, flags).await;
            let opened = ask.end(opened, |it| format!("[fh:{}]", it.fh.0))?;
            if let Some(notifier) = notifier.get().filter(|_| opened.stale_attr) {
                // Heard before the answer: who opens the file sees how long it is now.
                if notifier.send(Notification::Inode { ino, offset: -1, length: 0 }) {
                    notifier.delivered().await;
                }
            }
            ask.vfs.metrics().opened();
            Ok(opened_answer(&opened))
        };
        reply.spawn_detachable(work, orphan(vfs, ino));
    }

    fn create(&self, request: &Request, create: Create<'_>, reply: Reply<Created>) {
        let Create { name, flags, mode, umask, .. } = create;
        let dir = self.node(request.ino);
        let args = || format!("{dir},{},{},0x{flags:X}", show::name(name), show::mode(mode));
        let ask = self.ask("create", request, args);
        let (name, modes) = (Bytes::copy_from_slice(name), (permissions(mode), permissions(umask)));
        let exclusive = open_flags(flags).contains(OFlag::O_EXCL);
        let vfs = Arc::clone(&self.vfs);
        let work = async move {
            let made = ask.vfs.create(&ask.caller, (dir, &name), modes, exclusive).await;
            created(&ask, made)
        };
        reply.spawn_detachable(work, orphan_new(vfs));
    }

    fn tmpfile(&self, request: &Request, create: Create<'_>, reply: Reply<Created>) {
        let Create { flags, mode, umask, .. } = create;
        let dir = self.node(request.ino);
        let args = || format!("{dir},,{},0x{flags:X}", show::mode(mode));
        let ask = self.ask("create", request, args);
        let modes = (permissions(mode), permissions(umask));
        let vfs = Arc::clone(&self.vfs);
        let work = async move {
            let made = ask.vfs.tmpfile(&ask.caller, dir, modes).await;
            created(&ask, made)
        };
        reply.spawn_detachable(work, orphan_new(vfs));
    }

    fn read(&self, request: &Request, read: Read, reply: Reply<Content>) {
        let Read { fh, offset, size, flags, .. } = read;
        let ino = self.node(request.ino);
        let args = || format!("{ino},{size},{offset},{}", fh.0);
        let ask = self.ask("read", request, args);
        if let Some(parts) = self.vfs.read_now(ino, fh, offset, size) {
            reply.send(read_answer(&ask, Ok(parts)));
            return;
        }
        reply.spawn_abortable(async move {
            let parts = ask.vfs.read(ino, (fh, open_flags(flags)), offset, size).await;
            read_answer(&ask, parts)
        });
    }

    fn write(&self, request: &Request, write: Write, data: Payload<'_>, reply: Reply<Written>) {
        let Write { fh, offset, size, flags, from_cache, .. } = write;
        let ino = self.node(request.ino);
        let appends = open_flags(flags).contains(OFlag::O_APPEND) && !from_cache;
        let offset = if appends { self.vfs.end_to_append_at(ino, offset) } else { offset };
        let ask = self.ask("write", request, || format!("{ino},{size},{offset},{}", fh.0));
        let taken = match self.vfs.write_now(ino, fh, offset, data.as_slice()) {
            Ok(taken) if taken == data.as_slice().len() => {
                reply.send(write_answer(&ask, size, Ok(())));
                return;
            }
            Ok(taken) => taken,
            Err(error) => {
                reply.send(write_answer(&ask, size, Err(error)));
                return;
            }
        };
        let (offset, rest) = (offset + taken as u64, data.keep().slice(taken..));
        reply.spawn_abortable(async move {
            let written = ask.vfs.write(ino, (fh, open_flags(flags)), offset, &rest).await;
            write_answer(&ask, size, written)
        });
    }

    fn flush(&self, request: &Request, fh: Fh, lock_owner: u64, reply: Reply<()>) {
        let ino = self.node(request.ino);
        let ask = self.ask("flush", request, || format!("{ino},{},{lock_owner:016X}", fh.0));
        if let Some(flushed) = self.vfs.flush_now(ino, fh, lock_owner) {
            reply.send(ask.done(flushed));
            return;
        }
        let work = async move {
            let flushed = ask.vfs.flush(ino, fh, lock_owner).await;
            ask.done(flushed)
        };
        reply.spawn_detachable(work, drop);
    }

    fn release(&self, request: &Request, release: Release, reply: Reply<()>) {
        let (ino, fh) = (self.node(request.ino), release.fh);
        let ask = self.ask("release", request, || format!("{ino},{}", fh.0));
        self.vfs.metrics().closed();
        let flock = release.flock_unlock.then_some(release.lock_owner);
        let closing = self.vfs.release(ino, fh, flock);
        if closing.is_done() {
            reply.send(ask.done(Ok(())));
            return;
        }
        reply.spawn(async move {
            let finished = ask.vfs.finish(ino, closing).await;
            ask.done(finished)
        });
    }

    fn fsync(&self, request: &Request, fh: Fh, data_only: bool, reply: Reply<()>) {
        let ino = self.node(request.ino);
        let data_only = u8::from(data_only);
        let ask = self.ask("fsync", request, || format!("{ino},{data_only},{}", fh.0));
        let work = async move {
            let stored = ask.vfs.fsync(ino).await;
            ask.done(stored)
        };
        reply.spawn_detachable(work, drop);
    }

    fn opendir(&self, request: &Request, _: Open, reply: Reply<Opened>) {
        let ino = self.node(request.ino);
        let ask = self.ask("opendir", request, || ino.to_string());
        let cached = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        let flags = if self.vfs.options().readdir_cache { cached } else { FopenFlags::empty() };
        let opened = move |fh| Opened { flags, ..Opened::new(fh) };
        let shown = |fh: &Fh| format!("[fh:{}]", fh.0);
        if !ask.caller.check || ask.caller.is_root() {
            self.vfs.metrics().opened();
            let fh = ask.end(self.vfs.open_dir(ino), shown);
            reply.send(fh.map(opened));
            return;
        }
        let vfs = Arc::clone(&self.vfs);
        let work = async move {
            // To list it, one must be allowed to read it.
            let allowed = ask.vfs.access(&ask.caller, ino, 4).await;
            let fh = ask.end(allowed.and_then(|()| ask.vfs.open_dir(ino)), shown)?;
            ask.vfs.metrics().opened();
            Ok(opened(fh))
        };
        reply.spawn_detachable(work, move |opened| vfs.close_dir(ino, opened.fh));
    }

    fn readdir(&self, request: &Request, read: ReadDir, reply: Reply<Listing>) {
        let dir = self.node(request.ino);
        let args = || format!("{dir},{},{},{}", read.size, read.offset, read.fh.0);
        let ask = self.ask("readdir", request, args);
        reply.spawn_abortable(async move {
            let listing = listing::names(&ask, dir, read).await;
            ask.done(listing)
        });
    }

    fn readdirplus(&self, request: &Request, read: ReadDir, reply: Reply<ListingPlus>) {
        let dir = self.node(request.ino);
        let args = || format!("{dir},{},{},{}", read.size, read.offset, read.fh.0);
        let ask = self.ask("readdirplus", request, args);
        reply.spawn_abortable(async move {
            let listing = listing::nodes(&ask, dir, read).await;
            ask.done(listing)
        });
    }

    fn releasedir(&self, request: &Request, release: Release, reply: Reply<()>) {
        let (ino, fh) = (self.node(request.ino), release.fh);
        let ask = self.ask("releasedir", request, || format!("{ino},{}", fh.0));
        self.vfs.metrics().closed();
        self.vfs.close_dir(ino, fh);
        reply.send(ask.done(Ok(())));
    }

    fn fsyncdir(&self, request: &Request, _: Fh, _: bool, reply: Reply<()>) {
        // Names are stored before they are answered.
        let ask = self.ask("fsyncdir", request, || self.node(request.ino).to_string());
        reply.send(ask.done(Ok(())));
    }

    fn statfs(&self, request: &Request, reply: Reply<Space>) {
        let ino = self.node(request.ino);
        let ask = self.ask("statfs", request, || ino.to_string());
        reply.spawn_abortable(async move {
            let stat = ask.vfs.statfs(ino).await;
            let shown = |it: &crate::meta::StatFs| {
                let (space, files) =
                    ((it.total, it.available), (it.used_inodes, it.available_inodes));
                format!("({},{},{},{})", space.0, space.1, files.0, files.1)
            };
            let stat = ask.end(stat, shown)?;
            let free = stat.available / BLOCK;
            Ok(Space {
                block_size: 4096,
                blocks: stat.total / BLOCK,
                blocks_free: free,
                blocks_available: free,
                files: stat.used_inodes.saturating_add(stat.available_inodes),
                files_free: stat.available_inodes,
                name_max: NAME_MAX,
            })
        });
    }

    fn setxattr(&self, request: &Request, xattr: SetXattr<'_>, reply: Reply<()>) {
        if !self.vfs.has_xattrs() {
            reply.refuse(Errno::ENOSYS);
            return;
        }
        let SetXattr { name, value, flags, .. } = xattr;
        let ino = self.node(request.ino);
        let args = || format!("{ino},{},{},{flags}", show::name(name), value.len());
        let ask = self.ask("setxattr", request, args);
        let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        let work = async move {
            let set = ask.vfs.set_xattr(&ask.caller, ino, &name, &value, flags).await;
            ask.done(set)
        };
        reply.spawn_detachable(work, drop);
    }

    fn getxattr(&self, request: &Request, name: &[u8], reply: Reply<Xattr>) {
        if !self.vfs.has_xattrs() {
            reply.refuse(Errno::ENOSYS);
            return;
        }
        let ino = self.node(request.ino);
        let ask = self.ask("getxattr", request, || format!("{ino},{}", show::name(name)));
        if self.vfs.lacks_xattr(ino, name) {
            reply.send(ask.done(Err(Error::NoAttribute)));
            return;
        }
        let name = Bytes::copy_from_slice(name);
        reply.spawn_abortable(async move {
            let value = ask.vfs.xattr(ino, &name).await;
            ask.end(value, |value| format!("({})", value.len())).map(Xattr)
        });
    }

    fn listxattr(&self, request: &Request, reply: Reply<Xattr>) {
        if !self.vfs.has_xattrs() {
            reply.refuse(Errno::ENOSYS);
            return;
        }
        let ino = self.node(request.ino);
        let ask = self.ask("listxattr", request, || ino.to_string());
        reply.spawn_abortable(async move {
            let names = ask.vfs.xattr_names(&ask.caller, ino).await;
            ask.end(names, |names| format!("({})", names.len())).map(Xattr)
        });
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        if !self.vfs.has_xattrs() {
            reply.refuse(Errno::ENOSYS);
            return;
        }
        let ino = self.node(request.ino);
        let ask = self.ask("removexattr", request, || format!("{ino},{}", show::name(name)));
        let name = Bytes::copy_from_slice(name);
        let work = async move {
            let removed = ask.vfs.remove_xattr(&ask.caller, ino, &name).await;
            ask.done(removed)
        };
        reply.spawn_detachable(work, drop);
    }

    fn getlk(&self, request: &Request, lock: Lock, reply: Reply<Held>) {
        let ask = self.ask("getlk", request, || lock_args(self.node(request.ino), &lock));
        let (ino, kind) = (self.node(request.ino), lock.kind);
        let earlier = self.vfs.earlier_unlocks(ino);
        reply.spawn_abortable(async move {
            let free = Held::free(&lock);
            let Some(kind) = kind else { return ask.done(Ok(free)) };
            earlier.await;
            let held = ask.vfs.find_lock(ino, lock.owner, kind, lock.start..=lock.end).await;
            let held = ask.done(held)?;
            Ok(held.map_or(free, |it| Held {
                start: it.start,
                end: it.end,
                kind: Some(it.kind),
                pid: it.pid,
            }))
        });
    }

    fn setlk(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        self.lock(request, lock, false, reply);
    }

    fn setlkw(&self, request: &Request, lock: Lock, reply: Reply<()>) {
        self.lock(request, lock, true, reply);
    }

    fn fallocate(&self, request: &Request, allocate: Allocate, reply: Reply<()>) {
        let Allocate { fh, offset, length, mode } = allocate;
        let ino = self.node(request.ino);
        let args = || format!("{ino},{mode},{offset},{length},{}", fh.0);
        let ask = self.ask("fallocate", request, args);
        let work = async move {
            let done = ask.vfs.fallocate(&ask.caller, ino, mode, offset, length).await;
            ask.done(done.map(drop))
        };
        reply.spawn_detachable(work, drop);
    }

    fn lseek(&self, request: &Request, _: Fh, offset: u64, whence: u32, reply: Reply<Offset>) {
        let ino = self.node(request.ino);
        let ask = self.ask("lseek", request, || format!("{ino},{offset},{whence}"));
        let seek = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => {
                reply.send(ask.done(Err(Error::Invalid)));
                return;
            }
        };
        reply.spawn_abortable(async move {
            let found = ask.vfs.seek(ino, offset, seek).await;
            ask.done(found.and_then(|it| it.ok_or(Error::NoSuchAddress))).map(Offset)
        });
    }

    fn copy_file_range(&self, request: &Request, copy: CopyRange, reply: Reply<Copied>) {
        let CopyRange { offset, to, to_offset, length, flags, .. } = copy;
        let ino = self.node(request.ino);
        let args = || format!("{ino},{offset},{to},{to_offset},{length},{flags}");
        let ask = self.ask("copy_file_range", request, args);
        let length = length.min(MAX_COPY);
        let work = async move {
            let (from, to) = ((ino, offset), (to, to_offset));
            let copied = ask.vfs.copy_range(from, to, length, flags).await;
            ask.end(copied, |bytes| format!("({bytes})")).map(Copied)
        };
        reply.spawn_detachable(work, drop);
    }

    fn ioctl(&self, request: &Request, ioctl: Ioctl<'_>, reply: Reply<IoctlDone>) {
        if !self.vfs.options().ioctl {
            reply.refuse(Errno::ENOTTY);
            return;
        }
        let Ioctl { command, input, output_size, .. } = ioctl;
        let ino = self.node(request.ino);
        let ask = self.ask("ioctl", request, || format!("{ino},0x{command:X}"));
        let input = Bytes::copy_from_slice(input);
        let work = async move {
            let done = ioctl::run(&ask, ino, command, &input, output_size).await;
            ask.done(done)
        };
        reply.spawn_detachable(work, drop);
    }
}

impl Served {
    fn lock(&self, request: &Request, lock: Lock, block: bool, reply: Reply<()>) {
        let method = if lock.flock { "flock" } else { "setlk" };
        let ask = self.ask(method, request, || lock_args(self.node(request.ino), &lock));
        let Lock { fh, owner, start, end, kind, pid, flock } = lock;
        let ino = self.node(request.ino);
        let earlier = self.vfs.earlier_unlocks(ino);
        let work = async move {
            let vfs = &ask.vfs;
            if kind.is_some() {
                earlier.await;
            }
            let locked = if flock {
                vfs.flock(ino, owner, kind, block).await
            } else {
                vfs.lock_range((ino, fh), (owner, pid), kind, start..=end, block).await
            };
            ask.done(locked)
        };
        if block {
            // The wait ends with any signal, and no lock is left behind then.
            reply.spawn_interruptible(work);
        } else {
            reply.spawn_abortable(work);
        }
    }
}

fn lock_args(ino: Ino, lock: &Lock) -> String {
    let Lock { fh, owner, start, end, kind, pid, .. } = lock;
    format!("{ino},{},{owner:016X},{start},{end},{kind:?},{pid}", fh.0)
}

fn open_flags(bits: u32) -> OFlag {
    OFlag::from_bits_truncate(bits.cast_signed())
}

fn opened_answer(opened: &OpenedNode) -> Opened {
    // Direct writes to one file need not wait for each other.
    let mut flags = FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    Opened { flags, ..Opened::new(opened.fh) }
}

fn created(ask: &Ask, made: Result<(crate::vfs::Node, OpenedNode)>) -> Result<Created> {
    let shown =
        |it: &(crate::vfs::Node, OpenedNode)| format!("{} [fh:{}]", show::node(&it.0), it.1.fh.0);
    let (node, opened) = ask.end(made, shown)?;
    ask.vfs.metrics().opened();
    Ok(Created { entry: ask::entry(&ask.vfs, &node), opened: opened_answer(&opened) })
}

fn read_answer(ask: &Ask, parts: Result<Vec<Bytes>>) -> Result<Content> {
    let length = |parts: &Vec<Bytes>| parts.iter().map(Bytes::len).sum::<usize>();
    let parts = ask.end(parts, |parts| format!("({})", length(parts)))?;
    ask.vfs.metrics().read(length(&parts));
    Ok(Content(parts))
}

fn write_answer(ask: &Ask, size: u32, written: Result<()>) -> Result<Written> {
    ask.done(written)?;
    ask.vfs.metrics().wrote(usize::try_from(size).unwrap_or(usize::MAX));
    Ok(Written(size))
}

/// Closes what was opened for somebody who left.
fn orphan(vfs: Arc<Vfs>, ino: Ino) -> impl FnOnce(Opened) + Send + 'static {
    move |opened| {
        tokio::spawn(async move { vfs.abandon(opened.fh, ino).await });
    }
}

fn orphan_new(vfs: Arc<Vfs>) -> impl FnOnce(Created) + Send + 'static {
    move |created| {
        tokio::spawn(async move { vfs.abandon(created.opened.fh, created.entry.ino).await });
    }
}

/// The kernel's own time of change, with its write-back cache, is not ours to store.
fn node_change(change: &SetAttr) -> NodeChange {
    let time = |time: Option<SetTime>| {
        time.map(|time| match time {
            SetTime::Now => TimeSet::Now,
            SetTime::At(at) => TimeSet::At(at),
        })
    };
    let set = AttrSet {
        mode: change.mode.map(permissions),
        uid: change.uid,
        gid: change.gid,
        atime: time(change.atime),
        mtime: time(change.mtime),
        ..AttrSet::default()
    };
    NodeChange { set, length: change.size, fh: change.fh }
}
