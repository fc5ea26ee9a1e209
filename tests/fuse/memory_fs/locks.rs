//! BSD and POSIX locks, independent of each other.

use jfs::error::{Error, Result};
use jfs::fuse::{Lock, LockConflict};
use jfs::meta::record::lock::{
    flock_conflicts, lock as locked, plock_conflict, unlock as unlocked,
};
use jfs::meta::record::{Flock, LockKind, Plock, PlockRange};
use jfs::meta::{LockOwner, Sid};

use super::MemoryFs;
use super::nodes::Node;

const SID: Sid = Sid(1);

impl MemoryFs {
    pub fn held(&self, ino: u64, lock: &Lock) -> Result<LockConflict> {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(ino)?;
        let Some(kind) = lock.kind else { return Err(Error::Invalid) };
        let wanted = PlockRange { kind, pid: lock.pid, start: lock.start, end: lock.end };
        let conflict = plock_conflict(&node.plocks, SID, LockOwner(lock.owner), &wanted);
        Ok(conflict.map_or(LockConflict::free(lock), |(_, range)| LockConflict {
            start: range.start,
            end: range.end,
            kind: Some(range.kind),
            pid: range.pid,
        }))
    }

    pub fn set_lock(&self, ino: u64, lock: &Lock) -> Result<()> {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(ino)?;
        let owner = LockOwner(lock.owner);
        if lock.flock { flock(node, owner, lock.kind) } else { plock(node, owner, lock) }?;
        drop(nodes);
        self.unlocked.notify_waiters();
        Ok(())
    }

    pub async fn wait_for_lock(&self, ino: u64, lock: Lock) -> Result<()> {
        loop {
            let unlocked = self.unlocked.notified();
            tokio::pin!(unlocked);
            unlocked.as_mut().enable();
            match self.set_lock(ino, &lock) {
                Err(Error::WouldBlock) => unlocked.await,
                done => return done,
            }
        }
    }

    /// Releases the locks of an owner, of one kind.
    pub fn drop_locks(&self, ino: u64, owner: u64, of_flock: bool) {
        if let Ok(node) = self.nodes().get_mut(ino) {
            if of_flock {
                node.flocks.retain(|held| held.owner.0 != owner);
            } else {
                node.plocks.retain(|held| held.owner.0 != owner);
            }
        }
        self.unlocked.notify_waiters();
    }
}

fn flock(node: &mut Node, owner: LockOwner, kind: Option<LockKind>) -> Result<()> {
    if let Some(kind) = kind
        && flock_conflicts(&node.flocks, SID, owner, kind)
    {
        return Err(Error::WouldBlock);
    }
    node.flocks.retain(|held| held.owner != owner);
    node.flocks.extend(kind.map(|kind| Flock { sid: SID, owner, kind }));
    Ok(())
}

fn plock(node: &mut Node, owner: LockOwner, lock: &Lock) -> Result<()> {
    let mut ranges = Vec::new();
    if let Some(index) = node.plocks.iter().position(|held| held.owner == owner) {
        ranges = node.plocks[index].ranges.clone();
    }
    let ranges = match lock.kind {
        None => unlocked(&ranges, lock.start, lock.end),
        Some(kind) => {
            let wanted = PlockRange { kind, pid: lock.pid, start: lock.start, end: lock.end };
            if plock_conflict(&node.plocks, SID, owner, &wanted).is_some() {
                return Err(Error::WouldBlock);
            }
            locked(&ranges, wanted)
        }
    };
    node.plocks.retain(|held| held.owner != owner);
    if !ranges.is_empty() {
        node.plocks.push(Plock { sid: SID, owner, ranges });
    }
    Ok(())
}
