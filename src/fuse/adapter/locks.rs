//! File locks.

use super::VfsAdapter;
use crate::fuse::protocol::decode::{Lock, Request};
use crate::fuse::protocol::encode::LockConflict;
use crate::fuse::session::Reply;
use crate::meta::Ino;
use crate::vfs::RangeLock;

pub fn getlk(adapter: &VfsAdapter, request: &Request, lock: Lock, reply: Reply<LockConflict>) {
    let call = adapter.call("getlk", request, || lock_args(adapter.node(request.ino), &lock));
    let (ino, kind) = (adapter.node(request.ino), lock.kind);
    let earlier = adapter.vfs.earlier_unlocks(ino);
    reply.spawn_abortable(async move {
        let free = LockConflict::free(&lock);
        let Some(kind) = kind else { return call.done(Ok(free)) };
        earlier.await;
        let held = call.vfs.find_lock(ino, lock.owner, kind, lock.start..=lock.end).await;
        let held = call.done(held)?;
        Ok(held.map_or(free, |it| LockConflict {
            start: it.start,
            end: it.end,
            kind: Some(it.kind),
            pid: it.pid,
        }))
    });
}

/// Sets or releases a lock. With `block`, waits for it.
pub fn set(adapter: &VfsAdapter, request: &Request, lock: Lock, block: bool, reply: Reply<()>) {
    let method = if lock.flock { "flock" } else { "setlk" };
    let call = adapter.call(method, request, || lock_args(adapter.node(request.ino), &lock));
    let Lock { fh, owner, start, end, kind, pid, flock } = lock;
    let ino = adapter.node(request.ino);
    let earlier = adapter.vfs.earlier_unlocks(ino);
    let work = async move {
        let vfs = &call.vfs;
        if kind.is_some() {
            earlier.await;
        }
        let locked = if flock {
            vfs.flock(ino, owner, kind, block).await
        } else {
            let lock = RangeLock { owner, pid, kind, range: start..=end };
            vfs.lock_range(ino, fh, lock, block).await
        };
        call.done(locked)
    };
    if block {
        // Any signal ends the wait, and then no lock is left behind.
        reply.spawn_interruptible(work);
    } else {
        reply.spawn_abortable(work);
    }
}

fn lock_args(ino: Ino, lock: &Lock) -> String {
    let Lock { fh, owner, start, end, kind, pid, .. } = lock;
    format!("{ino},{},{owner:016X},{start},{end},{kind:?},{pid}", fh.0)
}
