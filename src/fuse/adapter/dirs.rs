//! Opening, listing and closing directories.

use std::sync::Arc;

use fuser::FopenFlags;

use super::VfsAdapter;
use super::listing;
use crate::fuse::protocol::decode::{ReadDir, Release, Request};
use crate::fuse::protocol::encode::{Listing, ListingPlus, OpenReply};
use crate::fuse::session::Reply;
use crate::vfs::Fh;

pub fn opendir(adapter: &VfsAdapter, request: &Request, reply: Reply<OpenReply>) {
    let ino = adapter.node(request.ino);
    let call = adapter.call("opendir", request, || ino.to_string());
    let cached = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
    let flags = if adapter.vfs.options().readdir_cache { cached } else { FopenFlags::empty() };
    let opened = move |fh| OpenReply { flags, ..OpenReply::new(fh) };
    let shown = |fh: &Fh| format!("[fh:{}]", fh.0);
    if !call.caller.check || call.caller.is_root() {
        adapter.vfs.metrics().opened();
        let fh = call.end(adapter.vfs.open_dir(ino), shown);
        reply.send(fh.map(opened));
        return;
    }
    let vfs = Arc::clone(&adapter.vfs);
    let work = async move {
        // Listing needs read permission.
        let allowed = call.vfs.access(&call.caller, ino, 4).await;
        let fh = call.end(allowed.and_then(|()| call.vfs.open_dir(ino)), shown)?;
        call.vfs.metrics().opened();
        Ok(opened(fh))
    };
    reply.spawn_detachable(work, move |opened| vfs.close_dir(ino, opened.fh));
}

pub fn readdir(adapter: &VfsAdapter, request: &Request, read: ReadDir, reply: Reply<Listing>) {
    let dir = adapter.node(request.ino);
    let args = || format!("{dir},{},{},{}", read.size, read.offset, read.fh.0);
    let call = adapter.call("readdir", request, args);
    reply.spawn_abortable(async move {
        let listing = listing::list_names(&call, dir, read).await;
        call.done(listing)
    });
}

pub fn readdirplus(
    adapter: &VfsAdapter,
    request: &Request,
    read: ReadDir,
    reply: Reply<ListingPlus>,
) {
    let dir = adapter.node(request.ino);
    let args = || format!("{dir},{},{},{}", read.size, read.offset, read.fh.0);
    let call = adapter.call("readdirplus", request, args);
    reply.spawn_abortable(async move {
        let listing = listing::list_nodes(&call, dir, read).await;
        call.done(listing)
    });
}

pub fn releasedir(adapter: &VfsAdapter, request: &Request, release: Release, reply: Reply<()>) {
    let (ino, fh) = (adapter.node(request.ino), release.fh);
    let call = adapter.call("releasedir", request, || format!("{ino},{}", fh.0));
    adapter.vfs.metrics().closed();
    adapter.vfs.close_dir(ino, fh);
    reply.send(call.done(Ok(())));
}

pub fn fsyncdir(adapter: &VfsAdapter, request: &Request, reply: Reply<()>) {
    // Names are committed before the reply.
    let call = adapter.call("fsyncdir", request, || adapter.node(request.ino).to_string());
    reply.send(call.done(Ok(())));
}
