//! Locks: BSD flocks and POSIX record locks, with and without waiting.

mod queue;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::engine::{Key, Record};
use crate::meta::op::claim::LockRequest;
use crate::meta::op::flock::SetFlock;
use crate::meta::op::plock::{FindPlock, SetPlock};
use crate::meta::record::{Flock, LockKind, Plock, PlockRange};
use crate::meta::{Ino, LockOwner, Sid};
use queue::LockQueues;

/// How long close waits for tries that are under way.
const GRACE: Duration = Duration::from_secs(10);

/// The lock requests of this client.
#[derive(Default)]
pub struct Locks {
    queues: LockQueues,
    /// Tries under way, and locks not yet delivered or being undone.
    tries: TaskTracker,
}

impl Meta {
    /// Sets or (with no kind) releases a whole-file lock. A lock that is held already changes its
    /// kind in place.
    ///
    /// If others are in the way, answers `WouldBlock`, or waits. The wait ends by dropping the
    /// future; no lock is left behind then, and what the owner held before stays. After an error
    /// that is [`Error::Unknown`] the lock may be held; releasing it is always safe.
    pub async fn flock(
        self: &Arc<Self>,
        ino: Ino,
        owner: LockOwner,
        kind: Option<LockKind>,
        block: bool,
    ) -> Result<()> {
        self.set_lock(SetFlock { ino, owner, kind }, block).await
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
        let request = SetPlock { ino, owner, kind, start, end, pid };
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
        self.run(&FindPlock { ino, owner, kind, start, end }).await
    }

    /// Every lock on a node, whoever holds it.
    pub async fn locks_on(&self, ino: Ino) -> Result<(Vec<Flock>, Vec<Plock>)> {
        let mut records =
            self.engine.read(&[Key::Flocks(ino), Key::Plocks(ino)]).await?.into_iter();
        match (records.next(), records.next()) {
            (Some(Record::Flocks(flocks)), Some(Record::Plocks(plocks))) => Ok((flocks, plocks)),
            other => Err(Error::damaged("locks", format!("the engine answered {other:?}"))),
        }
    }

    /// How many lock requests wait, are being tried or undone; 0 once nothing is left even of those
    /// that were abandoned.
    pub fn pending_locks(&self) -> usize {
        self.locks.queues.waiting() + self.locks.tries.len()
    }

    /// Once the client is closing: lets what is under way come to its end, so that nothing is locked
    /// in the name of a session that is gone.
    pub(super) async fn finish_locks(&self) {
        self.locks.tries.close();
        if tokio::time::timeout(GRACE, self.locks.tries.wait()).await.is_err() {
            tracing::warn!("lock requests are still under way at the end of the session");
        }
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
        let place = self.locks.queues.join((request.ino(), R::FAMILY), claim);
        loop {
            tokio::select! {
                () = place.turn() => {}
                () = self.closing() => return Err(Error::Interrupted),
            }
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
        // Taken before looking: either close waits for this try, or it sees that it came too late.
        let token = self.locks.tries.token();
        if self.is_closing() {
            return Err(Error::Interrupted);
        }
        let (meta, request) = (Arc::clone(self), request.clone());
        let task = tokio::spawn(async move { meta.run_lock(request, ticket, token).await });
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
        token: TaskTrackerToken,
    ) -> Result<Delivery<R>> {
        let sid = self.facts.sid();
        let tried = self.run(&request).await?;
        self.locks.queues.settle((request.ino(), R::FAMILY), ticket, &tried, sid);
        let takes = tried.granted && request.claim(sid).is_some();
        let undo = if takes { request.undo(&tried.before) } else { Vec::new() };
        Ok(Delivery { meta: self, granted: tried.granted, undo, _token: token })
    }

    async fn undo<R: LockRequest>(self: Arc<Self>, requests: Vec<R>) {
        for request in requests {
            let ino = request.ino();
            match self.run(&request).await {
                Ok(tried) => {
                    self.locks.queues.settle((ino, R::FAMILY), None, &tried, self.facts.sid());
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
    /// A lock on its way is still under way.
    _token: TaskTrackerToken,
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
            let undo = Arc::clone(&self.meta).undo(requests);
            self.meta.locks.tries.spawn_on(undo, &runtime);
        }
    }
}

fn checked(range: &RangeInclusive<u64>) -> Result<(u64, u64)> {
    let (start, end) = (*range.start(), (*range.end()).min(PlockRange::OPEN_END));
    if start > end { Err(Error::Invalid) } else { Ok((start, end)) }
}
