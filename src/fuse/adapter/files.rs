//! Opening, reading, writing and closing files.

use std::sync::Arc;

use bytes::Bytes;
use fuser::FopenFlags;
use nix::fcntl::OFlag;

use super::call::{Call, entry};
use super::convert::permissions;
use super::{VfsAdapter, log_format};
use crate::error::{Error, Result};
use crate::fuse::protocol::decode::{
    Allocate, CopyRange, Create, Open, Read, Release, Request, Write,
};
use crate::fuse::protocol::encode::{
    CopiedBytes, CreateReply, Offset, OpenReply, ReadReply, WrittenBytes,
};
use crate::fuse::session::{Notification, Payload, Reply};
use crate::meta::Ino;
use crate::vfs::{Fh, Node, OpenedNode, Seek, Vfs};

/// lseek(2) for data and holes; the kernel handles the other kinds itself.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Longer copies are split by the kernel: the older format of the reply has 32 bits.
const MAX_COPY: u64 = (1 << 32) - (64 << 20);

pub fn open(adapter: &VfsAdapter, request: &Request, open: Open, mut reply: Reply<OpenReply>) {
    let (ino, flags) = (adapter.node(request.ino), open_flags(open.flags));
    let call = adapter.call("open", request, || format!("{ino},0x{:X}", open.flags));
    let call = call.recorded(&mut reply);
    let (vfs, notifier) = (Arc::clone(&adapter.vfs), Arc::clone(&adapter.notifier));
    let work = async move {
        let opened = call.vfs.open(&call.caller, ino, flags).await;
        let opened = call.end(opened, |it| format!("[fh:{}]", it.fh.0))?;
        if let Some(notifier) = notifier.get().filter(|_| opened.stale_attr) {
            // Delivered before the reply: the caller sees the current length.
            if notifier.send(Notification::Inode { ino, offset: -1, length: 0 }) {
                notifier.delivered().await;
            }
        }
        call.vfs.metrics().opened();
        Ok(open_reply(&opened))
    };
    reply.spawn_detachable(work, close_opened(vfs, ino));
}

pub fn create(
    adapter: &VfsAdapter,
    request: &Request,
    create: Create<'_>,
    mut reply: Reply<CreateReply>,
) {
    let Create { name, flags, mode, umask, .. } = create;
    let dir = adapter.node(request.ino);
    let args =
        || format!("{dir},{},{},0x{flags:X}", log_format::name(name), log_format::mode(mode));
    let call = adapter.call("create", request, args).recorded(&mut reply);
    let name = Bytes::copy_from_slice(name);
    let (mode, umask) = (permissions(mode), permissions(umask));
    let exclusive = open_flags(flags).contains(OFlag::O_EXCL);
    let vfs = Arc::clone(&adapter.vfs);
    let work = async move {
        let created = call.vfs.create(&call.caller, dir, &name, mode, umask, exclusive).await;
        create_reply(&call, created)
    };
    reply.spawn_detachable(work, close_created(vfs));
}

pub fn tmpfile(
    adapter: &VfsAdapter,
    request: &Request,
    create: Create<'_>,
    reply: Reply<CreateReply>,
) {
    let Create { flags, mode, umask, .. } = create;
    let dir = adapter.node(request.ino);
    let args = || format!("{dir},,{},0x{flags:X}", log_format::mode(mode));
    let call = adapter.call("create", request, args);
    let (mode, umask) = (permissions(mode), permissions(umask));
    let vfs = Arc::clone(&adapter.vfs);
    let work = async move {
        let created = call.vfs.tmpfile(&call.caller, dir, mode, umask).await;
        create_reply(&call, created)
    };
    reply.spawn_detachable(work, close_created(vfs));
}

pub fn read(adapter: &VfsAdapter, request: &Request, read: Read, reply: Reply<ReadReply>) {
    let Read { fh, offset, size, flags, .. } = read;
    let ino = adapter.node(request.ino);
    let args = || format!("{ino},{size},{offset},{}", fh.0);
    let call = adapter.call("read", request, args);
    if let Some(parts) = adapter.vfs.read_now(ino, fh, offset, size) {
        reply.send(read_reply(&call, Ok(parts)));
        return;
    }
    reply.spawn_abortable(async move {
        let parts = call.vfs.read(ino, fh, open_flags(flags), offset, size).await;
        read_reply(&call, parts)
    });
}

pub fn write(
    adapter: &VfsAdapter,
    request: &Request,
    write: Write,
    data: Payload<'_>,
    mut reply: Reply<WrittenBytes>,
) {
    let Write { fh, offset, size, flags, from_cache, .. } = write;
    let ino = adapter.node(request.ino);
    let appends = open_flags(flags).contains(OFlag::O_APPEND) && !from_cache;
    let offset = if appends { append_at(adapter, ino, offset, &mut reply) } else { offset };
    let call = adapter.call("write", request, || format!("{ino},{size},{offset},{}", fh.0));
    let taken = match adapter.vfs.write_now(ino, fh, offset, data.as_slice()) {
        Ok(taken) if taken == data.as_slice().len() => {
            reply.send(write_reply(&call, size, Ok(())));
            return;
        }
        Ok(taken) => taken,
        Err(error) => {
            reply.send(write_reply(&call, size, Err(error)));
            return;
        }
    };
    let (offset, rest) = (offset + taken as u64, data.keep().slice(taken..));
    reply.spawn_abortable(async move {
        let written = call.vfs.write(ino, fh, open_flags(flags), offset, &rest).await;
        write_reply(&call, size, written)
    });
}

/// Returns where to append. A repeated request appends where it would have before.
fn append_at(adapter: &VfsAdapter, ino: Ino, offset: u64, reply: &mut Reply<WrittenBytes>) -> u64 {
    const APPEND: u64 = 1;
    let record = reply.record();
    if let Some([APPEND, offset, ..]) = record.as_ref().and_then(|record| record.earlier()) {
        return offset;
    }
    let offset = adapter.vfs.end_to_append_at(ino, offset);
    if let Some(record) = record {
        record.intend([APPEND, offset, 0, 0]);
    }
    offset
}

pub fn flush(adapter: &VfsAdapter, request: &Request, fh: Fh, lock_owner: u64, reply: Reply<()>) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("flush", request, || format!("{ino},{},{lock_owner:016X}", fh.0));
    if let Some(flushed) = adapter.vfs.flush_now(ino, fh, lock_owner) {
        reply.send(call.done(flushed));
        return;
    }
    let work = async move {
        let flushed = call.vfs.flush(ino, fh, lock_owner).await;
        call.done(flushed)
    };
    reply.spawn_detachable(work, drop);
}

pub fn release(adapter: &VfsAdapter, request: &Request, release: Release, reply: Reply<()>) {
    let (ino, fh) = (adapter.node(request.ino), release.fh);
    let call = adapter.call("release", request, || format!("{ino},{}", fh.0));
    adapter.vfs.metrics().closed();
    let flock = release.flock_unlock.then_some(release.lock_owner);
    let closing = adapter.vfs.release(ino, fh, flock);
    if closing.is_done() {
        reply.send(call.done(Ok(())));
        return;
    }
    reply.spawn(async move {
        let finished = call.vfs.finish(ino, closing).await;
        call.done(finished)
    });
}

pub fn fsync(adapter: &VfsAdapter, request: &Request, fh: Fh, data_only: bool, reply: Reply<()>) {
    let ino = adapter.node(request.ino);
    let data_only = u8::from(data_only);
    let call = adapter.call("fsync", request, || format!("{ino},{data_only},{}", fh.0));
    let work = async move {
        let stored = call.vfs.fsync(ino).await;
        call.done(stored)
    };
    reply.spawn_detachable(work, drop);
}

pub fn fallocate(adapter: &VfsAdapter, request: &Request, allocate: Allocate, reply: Reply<()>) {
    let Allocate { fh, offset, length, mode } = allocate;
    let ino = adapter.node(request.ino);
    let args = || format!("{ino},{mode},{offset},{length},{}", fh.0);
    let call = adapter.call("fallocate", request, args);
    let work = async move {
        let done = call.vfs.fallocate(&call.caller, ino, mode, offset, length).await;
        call.done(done.map(drop))
    };
    reply.spawn_detachable(work, drop);
}

pub fn lseek(
    adapter: &VfsAdapter,
    request: &Request,
    offset: u64,
    whence: u32,
    reply: Reply<Offset>,
) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("lseek", request, || format!("{ino},{offset},{whence}"));
    let seek = match whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => {
            reply.send(call.done(Err(Error::Invalid)));
            return;
        }
    };
    reply.spawn_abortable(async move {
        let found = call.vfs.seek(ino, offset, seek).await;
        call.done(found.and_then(|it| it.ok_or(Error::NoSuchAddress))).map(Offset)
    });
}

pub fn copy_file_range(
    adapter: &VfsAdapter,
    request: &Request,
    copy: CopyRange,
    reply: Reply<CopiedBytes>,
) {
    let CopyRange { offset, to, to_offset, length, flags, .. } = copy;
    let ino = adapter.node(request.ino);
    let args = || format!("{ino},{offset},{to},{to_offset},{length},{flags}");
    let call = adapter.call("copy_file_range", request, args);
    let length = length.min(MAX_COPY);
    let work = async move {
        let (from, to) = ((ino, offset), (to, to_offset));
        let copied = call.vfs.copy_range(from, to, length, flags).await;
        call.end(copied, |bytes| format!("({bytes})")).map(CopiedBytes)
    };
    reply.spawn_detachable(work, drop);
}

fn open_flags(bits: u32) -> OFlag {
    OFlag::from_bits_truncate(bits.cast_signed())
}

fn open_reply(opened: &OpenedNode) -> OpenReply {
    // Direct writes to one file need not wait for each other.
    let mut flags = FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    OpenReply { flags, ..OpenReply::new(opened.fh) }
}

fn create_reply(call: &Call, created: Result<(Node, OpenedNode)>) -> Result<CreateReply> {
    let shown = |it: &(Node, OpenedNode)| format!("{} [fh:{}]", log_format::node(&it.0), it.1.fh.0);
    let (node, opened) = call.end(created, shown)?;
    call.vfs.metrics().opened();
    Ok(CreateReply { entry: entry(&call.vfs, &node), opened: open_reply(&opened) })
}

fn read_reply(call: &Call, parts: Result<Vec<Bytes>>) -> Result<ReadReply> {
    let length = |parts: &Vec<Bytes>| parts.iter().map(Bytes::len).sum::<usize>();
    let parts = call.end(parts, |parts| format!("({})", length(parts)))?;
    call.vfs.metrics().read(length(&parts));
    Ok(ReadReply(parts))
}

fn write_reply(call: &Call, size: u32, written: Result<()>) -> Result<WrittenBytes> {
    call.done(written)?;
    call.vfs.metrics().wrote(usize::try_from(size).unwrap_or(usize::MAX));
    Ok(WrittenBytes(size))
}

/// Closes a handle whose caller is gone.
fn close_opened(vfs: Arc<Vfs>, ino: Ino) -> impl FnOnce(OpenReply) + Send + 'static {
    move |opened| {
        tokio::spawn(async move { vfs.abandon(opened.fh, ino).await });
    }
}

fn close_created(vfs: Arc<Vfs>) -> impl FnOnce(CreateReply) + Send + 'static {
    move |created| {
        tokio::spawn(async move { vfs.abandon(created.opened.fh, created.entry.ino).await });
    }
}
