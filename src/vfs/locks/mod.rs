//! Locks on open files: whole files by flock(2), ranges by fcntl(2). The two are independent.
//!
//! Tracks which owners have locked ranges: closing any handle of a file releases those of its
//! owner, and an owner without locks needs no request to metadata.

mod pending_unlocks;

use std::collections::HashSet;
use std::ops::RangeInclusive;

use nix::fcntl::OFlag;

use crate::error::{Error, Result};
use crate::meta::record::{LockKind, PlockRange};
use crate::meta::{Ino, LockOwner};
use crate::sync::MutexGuard;
use crate::vfs::Vfs;
use crate::vfs::handles::{Fh, Handle};
pub(super) use pending_unlocks::{PendingUnlock, PendingUnlocks};

const ALL: RangeInclusive<u64> = 0..=u64::MAX;

/// A range to lock by fcntl(2).
#[derive(Debug, Clone)]
pub struct RangeLock {
    pub owner: u64,
    pub pid: u32,
    /// `None` to unlock.
    pub kind: Option<LockKind>,
    pub range: RangeInclusive<u64>,
}

impl Vfs {
    /// Waits until the handles of the file that were released before this call have given up their
    /// locks. Must be called in the order of the requests, before asking for a lock.
    pub fn earlier_unlocks(&self, ino: Ino) -> impl Future<Output = ()> + Send + use<> {
        self.pending_unlocks.earlier(ino)
    }

    /// Sets or (without a kind) releases a lock on the whole file. Dropping the future ends the
    /// wait.
    pub async fn flock(
        &self,
        ino: Ino,
        owner: u64,
        kind: Option<LockKind>,
        block: bool,
    ) -> Result<()> {
        self.refuse_virtual(ino)?;
        self.meta.flock(ino, LockOwner(owner), kind, block).await
    }

    /// Sets or (without a kind) releases a range lock. Dropping the future ends the wait.
    pub async fn lock_range(&self, ino: Ino, fh: Fh, lock: RangeLock, block: bool) -> Result<()> {
        self.refuse_virtual(ino)?;
        let RangeLock { owner, pid, kind, range } = lock;
        if kind.is_some() {
            // Before asking for the lock: if the reply is lost, the lock may be held all the same.
            self.record_locker(ino, fh, owner).await?;
        }
        self.meta.set_plock(ino, LockOwner(owner), kind, range, pid, block).await
    }

    /// Returns a lock that conflicts with the given one.
    pub async fn find_lock(
        &self,
        ino: Ino,
        owner: u64,
        kind: LockKind,
        range: RangeInclusive<u64>,
    ) -> Result<Option<PlockRange>> {
        self.refuse_virtual(ino)?;
        self.meta.plock(ino, LockOwner(owner), kind, range).await
    }

    pub(super) async fn unlock_all(&self, ino: Ino, owner: u64) -> Result<()> {
        self.meta.flock(ino, LockOwner(owner), None, false).await
    }

    pub(super) async fn unlock_ranges(&self, ino: Ino, owner: u64) -> Result<()> {
        self.meta.set_plock(ino, LockOwner(owner), None, ALL, 0, false).await?;
        self.lockers().remove(&(ino, owner));
        Ok(())
    }

    pub(super) fn is_locker(&self, ino: Ino, owner: u64) -> bool {
        self.lockers().contains(&(ino, owner))
    }

    async fn record_locker(&self, ino: Ino, fh: Fh, owner: u64) -> Result<()> {
        if let Handle::File(file) = &*self.file(ino, fh, OFlag::O_RDONLY).await? {
            file.lockers().insert(owner);
        }
        self.lockers().insert((ino, owner));
        Ok(())
    }

    fn refuse_virtual(&self, ino: Ino) -> Result<()> {
        if self.virtual_files.attr(ino).is_some() { Err(Error::NotPermitted) } else { Ok(()) }
    }

    fn lockers(&self) -> MutexGuard<'_, HashSet<(Ino, u64)>> {
        self.lockers.lock()
    }
}
