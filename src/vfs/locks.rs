//! Locks of open files: whole files by flock(2), ranges by fcntl(2). The two do not see each other.
//!
//! Remembers who has locked ranges: closing any handle of a file frees those of its owner, and who
//! has none need not ask.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use nix::fcntl::OFlag;

use super::base::Vfs;
use super::handles::{Fh, Handle};
use crate::error::{Error, Result};
use crate::meta::record::{LockKind, PlockRange};
use crate::meta::{Ino, LockOwner};
use crate::sync::MutexGuard;

const ALL: RangeInclusive<u64> = 0..=u64::MAX;

impl Vfs {
    /// Waits until handles of the file that were released before this call have given up what was
    /// locked through them. Who asks for a lock must come here in the order of the requests.
    pub fn earlier_unlocks(&self, ino: Ino) -> impl Future<Output = ()> + Send + use<> {
        self.unlocks.earlier(ino)
    }

    /// Sets or (with no kind) releases a lock on the whole file. The wait ends by dropping the
    /// future.
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

    /// Sets or (with no kind) releases a range. The wait ends by dropping the future.
    pub async fn lock_range(
        &self,
        (ino, fh): (Ino, Fh),
        (owner, pid): (u64, u32),
        kind: Option<LockKind>,
        range: RangeInclusive<u64>,
        block: bool,
    ) -> Result<()> {
        self.refuse_virtual(ino)?;
        if kind.is_some() {
            // Before the lock is asked for: if its answer is lost, it may be held all the same.
            self.locking(ino, fh, owner).await?;
        }
        self.meta.set_plock(ino, LockOwner(owner), kind, range, pid, block).await
    }

    /// What is in the way of such a lock.
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

    async fn locking(&self, ino: Ino, fh: Fh, owner: u64) -> Result<()> {
        if let Handle::File(file) = &*self.file(ino, fh, OFlag::O_RDONLY).await? {
            file.lockers().insert(owner);
        }
        self.lockers().insert((ino, owner));
        Ok(())
    }

    fn refuse_virtual(&self, ino: Ino) -> Result<()> {
        if self.internal.attr(ino).is_some() { Err(Error::NotPermitted) } else { Ok(()) }
    }

    fn lockers(&self) -> MutexGuard<'_, HashSet<(Ino, u64)>> {
        self.lockers.lock()
    }
}
