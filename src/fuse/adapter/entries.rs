//! Operations on names.

use bytes::Bytes;

use super::VfsAdapter;
use super::convert::{kind_of, permissions};
use super::log_format;
use crate::error::Error;
use crate::fuse::protocol::decode::{Mknod, Rename, Request};
use crate::fuse::protocol::encode::{Entry, LinkTarget};
use crate::fuse::session::Reply;
use crate::meta::{Ino, NodeKind};

pub fn lookup(adapter: &VfsAdapter, request: &Request, name: &[u8], reply: Reply<Entry>) {
    let dir = adapter.node(request.ino);
    let call = adapter.call("lookup", request, || format!("{dir},{}", log_format::name(name)));
    let name = Bytes::copy_from_slice(name);
    reply.spawn_abortable(async move {
        let found = call.vfs.lookup(&call.caller, dir, &name).await;
        call.found(found)
    });
}

pub fn readlink(adapter: &VfsAdapter, request: &Request, reply: Reply<LinkTarget>) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("readlink", request, || ino.to_string());
    reply.spawn_abortable(async move {
        let target = call.vfs.readlink(ino).await;
        call.end(target, |target| format!("({})", log_format::name(target))).map(LinkTarget)
    });
}

pub fn symlink(
    adapter: &VfsAdapter,
    request: &Request,
    name: &[u8],
    target: &[u8],
    mut reply: Reply<Entry>,
) {
    let dir = adapter.node(request.ino);
    let args = || format!("{dir},{},{}", log_format::name(name), log_format::name(target));
    let call = adapter.call("symlink", request, args).recorded(&mut reply);
    let (name, target) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(target));
    let work = async move {
        let created = call.vfs.symlink(&call.caller, dir, &name, target).await;
        call.entry(created)
    };
    reply.spawn_detachable(work, drop);
}

pub fn mknod(adapter: &VfsAdapter, request: &Request, node: Mknod<'_>, mut reply: Reply<Entry>) {
    let Mknod { name, mode, rdev, umask } = node;
    let dir = adapter.node(request.ino);
    let args =
        || format!("{dir},{},{},0x{rdev:08X}", log_format::name(name), log_format::mode(mode));
    let call = adapter.call("mknod", request, args).recorded(&mut reply);
    let Some(kind) = kind_of(mode) else {
        reply.send(Err(Error::Invalid));
        return;
    };
    let name = Bytes::copy_from_slice(name);
    let (mode, umask) = (permissions(mode), permissions(umask));
    let work = async move {
        let node = NodeKind { kind, rdev };
        let created = call.vfs.mknod(&call.caller, dir, &name, node, mode, umask).await;
        call.entry(created)
    };
    reply.spawn_detachable(work, drop);
}

pub fn mkdir(
    adapter: &VfsAdapter,
    request: &Request,
    name: &[u8],
    mode: u32,
    umask: u32,
    mut reply: Reply<Entry>,
) {
    let dir = adapter.node(request.ino);
    let args = || format!("{dir},{},{}", log_format::name(name), log_format::mode(mode));
    let call = adapter.call("mkdir", request, args).recorded(&mut reply);
    let name = Bytes::copy_from_slice(name);
    let (mode, umask) = (permissions(mode), permissions(umask));
    let work = async move {
        let created = call.vfs.mkdir(&call.caller, dir, &name, mode, umask).await;
        call.entry(created)
    };
    reply.spawn_detachable(work, drop);
}

pub fn unlink(adapter: &VfsAdapter, request: &Request, name: &[u8], mut reply: Reply<()>) {
    let dir = adapter.node(request.ino);
    let call = adapter
        .call("unlink", request, || format!("{dir},{}", log_format::name(name)))
        .recorded(&mut reply);
    let name = Bytes::copy_from_slice(name);
    let work = async move {
        let removed = call.vfs.unlink(&call.caller, dir, &name).await;
        call.done(removed)
    };
    reply.spawn_detachable(work, drop);
}

pub fn rmdir(adapter: &VfsAdapter, request: &Request, name: &[u8], mut reply: Reply<()>) {
    let dir = adapter.node(request.ino);
    let call = adapter
        .call("rmdir", request, || format!("{dir},{}", log_format::name(name)))
        .recorded(&mut reply);
    let name = Bytes::copy_from_slice(name);
    let work = async move {
        let removed = call.vfs.rmdir(&call.caller, dir, &name).await;
        call.done(removed)
    };
    reply.spawn_detachable(work, drop);
}

pub fn rename(adapter: &VfsAdapter, request: &Request, rename: Rename<'_>, mut reply: Reply<()>) {
    let Rename { name, new_dir, new_name, flags } = rename;
    let new_dir = adapter.node(new_dir);
    let dir = adapter.node(request.ino);
    let call = adapter.call("rename", request, || {
        let (old, new) = (log_format::name(name), log_format::name(new_name));
        format!("{dir},{old},{new_dir},{new},{flags}")
    });
    let call = call.recorded(&mut reply);
    let (old, new) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(new_name));
    let work = async move {
        let moved = call.vfs.rename(&call.caller, dir, &old, new_dir, &new, flags).await;
        call.done(moved)
    };
    reply.spawn_detachable(work, drop);
}

pub fn link(
    adapter: &VfsAdapter,
    request: &Request,
    node: Ino,
    name: &[u8],
    mut reply: Reply<Entry>,
) {
    let dir = adapter.node(request.ino);
    let call = adapter
        .call("link", request, || format!("{node},{dir},{}", log_format::name(name)))
        .recorded(&mut reply);
    let name = Bytes::copy_from_slice(name);
    let work = async move {
        let linked = call.vfs.link(&call.caller, node, dir, &name).await;
        call.entry(linked)
    };
    reply.spawn_detachable(work, drop);
}
