//! Attributes, extended attributes, permissions and statistics of nodes.

use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;

use super::VfsAdapter;
use super::convert::permissions;
use super::{ioctl, log_format};
use crate::error::Error;
use crate::fuse::protocol::decode::{Ioctl, Request, SetAttr, SetTime, SetXattr};
use crate::fuse::protocol::encode::{Attributes, IoctlReply, StatfsReply, Xattr};
use crate::fuse::session::Reply;
use crate::meta::{AttrSet, TimeSet};
use crate::vfs::NodeChange;

const BLOCK: u64 = 4096;
const NAME_MAX: u32 = 255;

pub fn getattr(adapter: &VfsAdapter, request: &Request, reply: Reply<Attributes>) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("getattr", request, || ino.to_string());
    reply.spawn_abortable(async move {
        let aged = call.vfs.getattr_aged(ino).await;
        let age = aged.as_ref().map_or(Duration::ZERO, |(_, age)| *age);
        let attributes = call.attributes(ino, aged.map(|(attr, _)| attr))?;
        let lifetime = attributes.lifetime.saturating_sub(age);
        Ok(Attributes { lifetime, ..attributes })
    });
}

pub fn setattr(adapter: &VfsAdapter, request: &Request, change: SetAttr, reply: Reply<Attributes>) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("setattr", request, || format!("{ino},{change:?}"));
    let change = node_change(&change);
    let work = async move {
        let attr = call.vfs.setattr(&call.caller, ino, change).await;
        call.attributes(ino, attr)
    };
    reply.spawn_detachable(work, drop);
}

pub fn access(adapter: &VfsAdapter, request: &Request, mask: u32, reply: Reply<()>) {
    if !adapter.vfs.options().check_permissions {
        // The kernel has checked permissions itself, and need not call again.
        reply.refuse(Errno::ENOSYS);
        return;
    }
    let ino = adapter.node(request.ino);
    let call = adapter.call("access", request, || format!("{ino},0x{mask:x}"));
    let mask = u16::try_from(mask & 7).unwrap_or_default();
    reply.spawn_abortable(async move {
        let allowed = call.vfs.access(&call.caller, ino, mask).await;
        call.done(allowed)
    });
}

pub fn statfs(adapter: &VfsAdapter, request: &Request, reply: Reply<StatfsReply>) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("statfs", request, || ino.to_string());
    reply.spawn_abortable(async move {
        let stat = call.vfs.statfs(ino).await;
        let shown = |it: &crate::meta::StatFs| {
            let (space, files) = ((it.total, it.available), (it.used_inodes, it.available_inodes));
            format!("({},{},{},{})", space.0, space.1, files.0, files.1)
        };
        let stat = call.end(stat, shown)?;
        let free = stat.available / BLOCK;
        Ok(StatfsReply {
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

pub fn setxattr(
    adapter: &VfsAdapter,
    request: &Request,
    xattr: SetXattr<'_>,
    mut reply: Reply<()>,
) {
    if !adapter.vfs.has_xattrs() {
        reply.refuse(Errno::ENOSYS);
        return;
    }
    let SetXattr { name, value, flags, .. } = xattr;
    let ino = adapter.node(request.ino);
    let args = || format!("{ino},{},{},{flags}", log_format::name(name), value.len());
    let call = adapter.call("setxattr", request, args).recorded(&mut reply);
    let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
    let work = async move {
        let set = call.vfs.set_xattr(&call.caller, ino, &name, &value, flags).await;
        call.done(set)
    };
    reply.spawn_detachable(work, drop);
}

pub fn getxattr(adapter: &VfsAdapter, request: &Request, name: &[u8], reply: Reply<Xattr>) {
    if !adapter.vfs.has_xattrs() {
        reply.refuse(Errno::ENOSYS);
        return;
    }
    let ino = adapter.node(request.ino);
    let call = adapter.call("getxattr", request, || format!("{ino},{}", log_format::name(name)));
    if adapter.vfs.lacks_xattr(ino, name) {
        reply.send(call.done(Err(Error::NoAttribute)));
        return;
    }
    let name = Bytes::copy_from_slice(name);
    reply.spawn_abortable(async move {
        let value = call.vfs.xattr(ino, &name).await;
        call.end(value, |value| format!("({})", value.len())).map(Xattr)
    });
}

pub fn listxattr(adapter: &VfsAdapter, request: &Request, reply: Reply<Xattr>) {
    if !adapter.vfs.has_xattrs() {
        reply.refuse(Errno::ENOSYS);
        return;
    }
    let ino = adapter.node(request.ino);
    let call = adapter.call("listxattr", request, || ino.to_string());
    reply.spawn_abortable(async move {
        let names = call.vfs.xattr_names(&call.caller, ino).await;
        call.end(names, |names| format!("({})", names.len())).map(Xattr)
    });
}

pub fn removexattr(adapter: &VfsAdapter, request: &Request, name: &[u8], mut reply: Reply<()>) {
    if !adapter.vfs.has_xattrs() {
        reply.refuse(Errno::ENOSYS);
        return;
    }
    let ino = adapter.node(request.ino);
    let call = adapter.call("removexattr", request, || format!("{ino},{}", log_format::name(name)));
    let call = call.recorded(&mut reply);
    let name = Bytes::copy_from_slice(name);
    let work = async move {
        let removed = call.vfs.remove_xattr(&call.caller, ino, &name).await;
        call.done(removed)
    };
    reply.spawn_detachable(work, drop);
}

pub fn ioctl(adapter: &VfsAdapter, request: &Request, ioctl: Ioctl<'_>, reply: Reply<IoctlReply>) {
    if !adapter.vfs.options().ioctl {
        reply.refuse(Errno::ENOTTY);
        return;
    }
    let Ioctl { command, input, output_size, .. } = ioctl;
    let ino = adapter.node(request.ino);
    let call = adapter.call("ioctl", request, || format!("{ino},0x{command:X}"));
    let input = Bytes::copy_from_slice(input);
    let work = async move {
        let done = ioctl::run(&call, ino, command, &input, output_size).await;
        call.done(done)
    };
    reply.spawn_detachable(work, drop);
}

/// The kernel's own ctime, with its write-back cache, is not stored.
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
