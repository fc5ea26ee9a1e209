//! Locks: BSD flocks and POSIX record locks, with and without waiting.

mod queue;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::engine::{Key, Record};
use crate::meta::op::locks::claim::LockRequest;
use crate::meta::op::locks::flock::SetFlock;
use crate::meta::op::locks::plock::{FindPlock, SetPlock};
use crate::meta::record::{Flock, LockKind, Plock, PlockRange};
use crate::meta::{Ino, LockOwner, Sid};
use queue::LockQueues;

/// How long `close` waits for attempts in progress.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The lock requests of this client.
#[derive(Default)]
pub struct Locks {
    queues: LockQueues,
    /// Attempts in progress, and locks that are not yet handed to the caller or being undone.
    attempts: TaskTracker,
}

impl Meta {
    /// Sets or, with no kind, releases a whole-file lock. A held lock changes its kind in place.
    ///
    /// If another owner holds a conflicting lock, fails with `WouldBlock` or waits. Dropping the
    /// future ends the wait; then no new lock is left behind, and the owner's earlier locks stay.
    /// After [`Error::Unknown`] the lock may be held; releasing it is always safe.
    pub async fn flock(
        self: &Arc<Self>,
        ino: Ino,
        owner: LockOwner,
        kind: Option<LockKind>,
        block: bool,
    ) -> Result<()> {
        self.set_lock(SetFlock { ino, owner, kind }, block).await
    }

    /// Sets or, with no kind, releases a range of bytes; it replaces what the owner held there.
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
        let (start, end) = check_range(&range)?;
        let request = SetPlock { ino, owner, kind, start, end, pid };
        self.set_lock(request, block).await
    }

    /// The first range of another owner that conflicts with such a lock. Its pid is 0 if another
    /// client holds it.
    pub async fn plock(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: RangeInclusive<u64>,
    ) -> Result<Option<PlockRange>> {
        let (start, end) = check_range(&range)?;
        self.run(&FindPlock { ino, owner, kind, start, end }).await
    }

    /// All locks on a node, of all clients.
    pub async fn locks_on(&self, ino: Ino) -> Result<(Vec<Flock>, Vec<Plock>)> {
        let mut records =
            self.engine.read(&[Key::Flocks(ino), Key::Plocks(ino)]).await?.into_iter();
        match (records.next(), records.next()) {
            (Some(Record::Flocks(flocks)), Some(Record::Plocks(plocks))) => Ok((flocks, plocks)),
            other => Err(Error::damaged("locks", format!("the engine returned {other:?}"))),
        }
    }

    /// The number of lock requests that wait, are being tried or undone, including abandoned ones.
    pub fn pending_locks(&self) -> usize {
        self.locks.queues.waiting() + self.locks.attempts.len()
    }

    /// Waits until no attempt is in progress, so that nothing is locked in the name of a closed
    /// session.
    pub(in crate::meta::client) async fn finish_locks(&self) {
        self.locks.attempts.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.locks.attempts.wait()).await.is_err() {
            tracing::warn!("lock requests are still in progress at the end of the session");
        }
    }

    async fn set_lock<R: LockRequest>(self: &Arc<Self>, request: R, block: bool) -> Result<()> {
        let sid = self.context.sid();
        let Some(claim) = request.claim(sid) else {
            return self.try_lock(&request, None).await.map(drop);
        };
        if self.context.options.read_only {
            return Err(Error::ReadOnly);
        }
        if sid == Sid(0) {
            // Locks of a dead client are released with its session; without a session these would
            // stay.
            return Err(Error::NotSupported);
        }
        if !block {
            let granted = self.try_lock(&request, None).await?;
            return if granted { Ok(()) } else { Err(Error::WouldBlock) };
        }
        let queued = self.locks.queues.join((request.ino(), R::FAMILY), claim);
        loop {
            tokio::select! {
                () = queued.until_may_try() => {}
                () = self.closing() => return Err(Error::Interrupted),
            }
            if self.try_lock(&request, Some(queued.ticket())).await? {
                return Ok(());
            }
        }
    }

    /// Tries once. The attempt is completed even if the caller goes away, since a sent commit
    /// cannot be cancelled; a lock that the caller does not receive is undone.
    async fn try_lock<R: LockRequest>(
        self: &Arc<Self>,
        request: &R,
        ticket: Option<u64>,
    ) -> Result<bool> {
        // Taken before the check: either `close` waits for this attempt, or the attempt sees that
        // the client is closing.
        let token = self.locks.attempts.token();
        if self.is_closing() {
            return Err(Error::Interrupted);
        }
        let (meta, request) = (Arc::clone(self), request.clone());
        let task = tokio::spawn(async move { meta.run_lock(request, ticket, token).await });
        match task.await {
            Ok(grant) => Ok(grant?.accept()),
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
    ) -> Result<PendingGrant<R>> {
        let sid = self.context.sid();
        let attempt = self.run(&request).await?;
        self.locks.queues.record_attempt((request.ino(), R::FAMILY), ticket, &attempt, sid);
        let is_new_lock = attempt.granted && request.claim(sid).is_some();
        let undo = if is_new_lock { request.undo(&attempt.before) } else { Vec::new() };
        Ok(PendingGrant { meta: self, granted: attempt.granted, undo, _token: token })
    }

    async fn undo<R: LockRequest>(self: Arc<Self>, requests: Vec<R>) {
        for request in requests {
            let ino = request.ino();
            match self.run(&request).await {
                Ok(attempt) => {
                    self.locks.queues.record_attempt(
                        (ino, R::FAMILY),
                        None,
                        &attempt,
                        self.context.sid(),
                    );
                }
                Err(error) => {
                    tracing::warn!(%ino, %error, "cannot undo the lock of an abandoned request");
                }
            }
        }
    }
}

/// The outcome of an attempt on its way to the caller. If it is dropped before that, it undoes the
/// lock.
struct PendingGrant<R: LockRequest> {
    meta: Arc<Meta>,
    granted: bool,
    undo: Vec<R>,
    /// Keeps `close` waiting until the lock is accepted or undone.
    _token: TaskTrackerToken,
}

impl<R: LockRequest> PendingGrant<R> {
    fn accept(mut self) -> bool {
        self.undo.clear();
        self.granted
    }
}

impl<R: LockRequest> Drop for PendingGrant<R> {
    fn drop(&mut self) {
        let requests = std::mem::take(&mut self.undo);
        // Without a runtime the process is ending; its locks are released with the session.
        if let Some(runtime) =
            tokio::runtime::Handle::try_current().ok().filter(|_| !requests.is_empty())
        {
            let undo = Arc::clone(&self.meta).undo(requests);
            self.meta.locks.attempts.spawn_on(undo, &runtime);
        }
    }
}

fn check_range(range: &RangeInclusive<u64>) -> Result<(u64, u64)> {
    let (start, end) = (*range.start(), (*range.end()).min(PlockRange::OPEN_END));
    if start > end { Err(Error::Invalid) } else { Ok((start, end)) }
}
