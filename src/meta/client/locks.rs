//! Locks: BSD flocks and POSIX record locks, with and without waiting.

mod queue;

use std::ops::RangeInclusive;
use std::sync::Arc;

pub(super) use queue::LockQueues;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::op::claim::LockRequest;
use crate::meta::op::flock::SetFlock;
use crate::meta::op::plock::{FindPlock, SetPlock};
use crate::meta::record::{LockKind, PlockRange};
use crate::meta::{Ino, LockOwner, Sid};

impl Meta {
    /// Sets or (with no kind) releases a whole-file lock. A lock that is held already changes its
    /// kind in place.
    ///
    /// If others are in the way, answers `WouldBlock`, or waits. The wait ends by dropping the
    /// future; no lock is left behind then, and what the owner held before stays.
    pub async fn flock(
        self: &Arc<Self>,
        ino: Ino,
        owner: LockOwner,
        kind: Option<LockKind>,
        block: bool,
    ) -> Result<()> {
        self.set_lock(SetFlock { ino: self.real(ino), owner, kind }, block).await
    }

    /// Sets or (with no kind) releases a range of bytes; what the owner held there is replaced.
    /// Waits as [`Meta::flock`] does.
    pub async fn set_plock(
        self: &Arc<Self>,
        ino: Ino,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: RangeInclusive<u64>,
        pid: u32,
        block: bool,
    ) -> Result<()> {
        let (start, end) = checked(&range)?;
        let request = SetPlock { ino: self.real(ino), owner, kind, start, end, pid };
        self.set_lock(request, block).await
    }

    /// The first range of another owner that is in the way of such a lock. Its pid is 0 if it is
    /// another client's.
    pub async fn plock(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: RangeInclusive<u64>,
    ) -> Result<Option<PlockRange>> {
        let (start, end) = checked(&range)?;
        self.run(&FindPlock { ino: self.real(ino), owner, kind, start, end }).await
    }

    /// How many lock requests of this client wait.
    pub fn waiting_locks(&self) -> usize {
        self.lock_queues.waiting()
    }

    async fn set_lock<R: LockRequest>(self: &Arc<Self>, request: R, block: bool) -> Result<()> {
        let sid = self.facts.sid();
        let Some(claim) = request.claim(sid) else {
            return self.try_lock(&request, None).await.map(drop);
        };
        if self.facts.options.read_only {
            return Err(Error::ReadOnly);
        }
        if sid == Sid(0) {
            // Locks are dropped with the session of a client that died; nobody would drop these.
            return Err(Error::NotSupported);
        }
        if !block {
            let granted = self.try_lock(&request, None).await?;
            return if granted { Ok(()) } else { Err(Error::WouldBlock) };
        }
        let place = self.lock_queues.join((request.ino(), R::FAMILY), claim);
        loop {
            place.turn().await;
            if self.try_lock(&request, Some(place.ticket())).await? {
                return Ok(());
            }
        }
    }

    /// Tries once. What is begun is carried to its end even if the caller goes away, since a
    /// commit that was sent cannot be called back; a lock that nobody takes delivery of is undone.
    async fn try_lock<R: LockRequest>(
        self: &Arc<Self>,
        request: &R,
        ticket: Option<u64>,
    ) -> Result<bool> {
        let (meta, request) = (Arc::clone(self), request.clone());
        let task = tokio::spawn(async move { meta.run_lock(request, ticket).await });
        match task.await {
            Ok(delivery) => Ok(delivery?.accept()),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => Err(Error::Interrupted),
            },
        }
    }

    async fn run_lock<R: LockRequest>(
        self: Arc<Self>,
        request: R,
        ticket: Option<u64>,
    ) -> Result<Delivery<R>> {
        let sid = self.facts.sid();
        let tried = self.run(&request).await?;
        self.lock_queues.settle((request.ino(), R::FAMILY), ticket, &tried, sid);
        let takes = tried.granted && request.claim(sid).is_some();
        let undo = if takes { request.undo(&tried.before) } else { Vec::new() };
        Ok(Delivery { meta: self, granted: tried.granted, undo })
    }

    async fn undo<R: LockRequest>(self: Arc<Self>, requests: Vec<R>) {
        for request in requests {
            let ino = request.ino();
            match self.run(&request).await {
                Ok(tried) => {
                    self.lock_queues.settle((ino, R::FAMILY), None, &tried, self.facts.sid());
                }
                Err(error) => {
                    tracing::warn!(%ino, %error, "lock of an abandoned request stays");
                }
            }
        }
    }
}

/// The outcome of a try on its way to the caller. Dropped undelivered, it undoes the lock.
struct Delivery<R: LockRequest> {
    meta: Arc<Meta>,
    granted: bool,
    undo: Vec<R>,
}

impl<R: LockRequest> Delivery<R> {
    fn accept(mut self) -> bool {
        self.undo.clear();
        self.granted
    }
}

impl<R: LockRequest> Drop for Delivery<R> {
    fn drop(&mut self) {
        let requests = std::mem::take(&mut self.undo);
        // Without a runtime the process is ending, and the session takes its locks with it.
        if let Some(runtime) =
            tokio::runtime::Handle::try_current().ok().filter(|_| !requests.is_empty())
        {
            runtime.spawn(Arc::clone(&self.meta).undo(requests));
        }
    }
}

fn checked(range: &RangeInclusive<u64>) -> Result<(u64, u64)> {
    let (start, end) = (*range.start(), (*range.end()).min(PlockRange::OPEN_END));
    if start > end { Err(Error::Invalid) } else { Ok((start, end)) }
}
