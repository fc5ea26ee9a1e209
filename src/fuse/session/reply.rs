//! The reply to a request, sent exactly once, from any thread.
//!
//! A handler replies at once, or moves the reply to a task and decides what an interrupt does to
//! it. A dropped reply sends EIO: a caller never waits for a reply that will not come.

use std::io::IoSlice;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, error};

use super::connection::Connection;
use super::signals::wait_until_abandoned;
use crate::error::{Error, Result};
use crate::fuse::protocol::abi;
use crate::fuse::protocol::decode::Request;
use crate::fuse::protocol::encode::{ReadReply, ReplyBody, ReplyBuffers, ReplyFormat};
use crate::fuse::protocol::message_head::MessageHead;
use crate::ledger::RequestRecord;

/// How long a caller that was asked to end, and handles that signal itself, keeps waiting: for work
/// that can be aborted, and for work that continues without it and may take effect.
const ABORTABLE_WAIT: Duration = Duration::from_secs(1);
const DETACHABLE_WAIT: Duration = Duration::from_secs(5);

/// The obligation to reply to one request.
#[must_use = "a dropped reply sends EIO"]
pub struct Reply<T: ReplyBody> {
    pending: Option<PendingReply>,
    answer: PhantomData<fn(T)>,
}

struct PendingReply {
    connection: Arc<Connection>,
    request: Request,
    format: ReplyFormat,
    /// Length of the request.
    length: usize,
    /// Set once the request is in the table of interrupts.
    interrupted: Option<CancellationToken>,
    /// Its record, if it changes something.
    record: Option<Arc<RequestRecord>>,
    /// Counts as work in flight until the reply is sent.
    _work: TaskTrackerToken,
}

impl<T: ReplyBody> Reply<T> {
    pub(super) fn new(
        connection: &Arc<Connection>,
        request: Request,
        format: ReplyFormat,
        length: usize,
    ) -> Self {
        let (work, connection) = (connection.work.token(), Arc::clone(connection));
        let (interrupted, record) = (None, None);
        let pending =
            PendingReply { connection, request, format, length, interrupted, record, _work: work };
        Self { pending: Some(pending), answer: PhantomData }
    }

    /// Sends the reply. False if nobody receives it: a handle in it has no holder, and no release
    /// will follow.
    pub fn send(mut self, result: Result<T>) -> bool {
        let Some(pending) = self.pending.take() else { return false };
        match result {
            Ok(answer) => pending.answer(answer),
            Err(error) => pending.fail(&error),
        }
    }

    /// Replies with an errno that is not one of our errors, such as ENOSYS.
    pub fn refuse(mut self, errno: Errno) -> bool {
        self.pending.take().is_some_and(|pending| pending.refuse(errno))
    }

    /// Records the request, which changes something: the next process can tell whether the change
    /// took effect if this one dies before it has replied.
    pub fn record(&mut self) -> Option<Arc<RequestRecord>> {
        let pending = self.pending.as_mut()?;
        let ledger = pending.connection.ledger.as_ref()?;
        let unique = pending.request.unique & !abi::RESENT;
        let record = ledger.begin_request(unique, pending.format.opcode as u32);
        pending.record = Some(Arc::clone(&record));
        Some(record)
    }

    /// Returns a token that is cancelled when the caller is interrupted: by a signal, or because it
    /// is killed. The request still needs a reply.
    pub fn interrupted(&mut self) -> CancellationToken {
        self.pending.as_mut().map_or_else(CancellationToken::new, |pending| {
            let enter = || pending.connection.interrupts.enter(pending.request.unique);
            pending.interrupted.get_or_insert_with(enter).clone()
        })
    }

    /// Replies with the result of the task, however long it takes: an interrupt does nothing.
    pub fn spawn(mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        // Registered, so that an interrupt is not taken for an early one.
        drop(self.interrupted());
        self.spawn_task(|reply| async move {
            reply.send(work.await);
        });
    }

    /// Replies with the result of the task; any signal drops the task and replies EINTR. For waits
    /// where programs expect that, such as for a lock.
    pub fn spawn_interruptible(mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        let interrupted = self.interrupted();
        self.abort_on(async move { interrupted.cancelled().await }, work);
    }

    /// Replies with the result of the task; the task is dropped at once if the caller dies, and
    /// soon after it was asked to end. For work that can be abandoned at any point, such as
    /// reading.
    pub fn spawn_abortable(mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        let abandoned = self.abandoned(ABORTABLE_WAIT);
        self.abort_on(abandoned, work);
    }

    /// Replies with the result of the task; a caller that dies gets EINTR while the task runs to
    /// its end, as a commit must, and one that was asked to end gets it later. A result that could
    /// not be sent goes to `orphan`: a handle that was opened has to be closed there.
    pub fn spawn_detachable(
        mut self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        orphan: impl FnOnce(T) + Send + 'static,
    ) {
        let abandoned = self.abandoned(DETACHABLE_WAIT);
        self.spawn_task(|reply| async move {
            let mut work = pin!(work);
            tokio::select! {
                biased;
                result = &mut work => {
                    reply.send(result);
                    return;
                }
                () = abandoned => {}
            }
            let request = reply.request();
            reply.send(Err(Error::Interrupted));
            match work.await {
                Ok(found) => orphan(found),
                Err(error) if error.is_fault() => {
                    error!(?request, %error, "an operation failed after its caller was gone");
                }
                Err(_) => {}
            }
        });
    }

    fn abort_on(
        self,
        abandoned: impl Future<Output = ()> + Send + 'static,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) {
        self.spawn_task(|reply| async move {
            let result = tokio::select! {
                biased;
                result = work => result,
                () = abandoned => Err(Error::Interrupted),
            };
            reply.send(result);
        });
    }

    /// Completes when the caller should not wait any longer.
    fn abandoned(&mut self, patience: Duration) -> impl Future<Output = ()> + Send + 'static {
        let pid = self.request().map_or(0, |request| request.pid);
        wait_until_abandoned(self.interrupted(), pid, patience)
    }

    fn spawn_task<F>(self, task: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(pending) = &self.pending else { return };
        let connection = Arc::clone(&pending.connection);
        let guard = connection.in_flight.add(pending.length);
        let task = task(self);
        connection.work.spawn_on(
            async move {
                task.await;
                drop(guard);
            },
            &connection.runtime,
        );
    }

    fn request(&self) -> Option<Request> {
        self.pending.as_ref().map(|pending| pending.request)
    }
}

impl Reply<ReadReply> {
    /// Replies to a read with data from several places, without copying or keeping it.
    pub fn send_slices(mut self, parts: &[&[u8]]) -> bool {
        let Some(pending) = self.pending.take() else { return false };
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if u32::try_from(length).map_or(true, |length| length > pending.format.size) {
            return pending.refuse(Errno::EIO);
        }
        let mut head = MessageHead::new();
        let mut slices = Vec::with_capacity(1 + parts.len());
        slices.push(IoSlice::new(head.seal(length, 0, pending.request.unique)));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        pending.transmit(&slices)
    }
}

impl<T: ReplyBody> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            let opcode = pending.format.opcode;
            if !pending.connection.is_muted() {
                error!(request = ?pending.request, ?opcode, "a request got no reply");
            }
            pending.refuse(Errno::EIO);
        }
    }
}

impl PendingReply {
    fn answer(self, answer: impl ReplyBody) -> bool {
        let unique = self.request.unique;
        let mut head = MessageHead::new();
        match answer.encode(self.format, &mut head) {
            Err(errno) => self.refuse(errno),
            Ok(ReplyBuffers::None) => self.transmit(&[IoSlice::new(head.seal(0, 0, unique))]),
            Ok(ReplyBuffers::One(part)) => {
                let head = head.seal(part.len(), 0, unique);
                self.transmit(&[IoSlice::new(head), IoSlice::new(&part)])
            }
            Ok(ReplyBuffers::Many(parts)) => {
                let length = parts.iter().map(bytes::Bytes::len).sum();
                let mut slices = Vec::with_capacity(1 + parts.len());
                slices.push(IoSlice::new(head.seal(length, 0, unique)));
                slices.extend(parts.iter().map(|part| IoSlice::new(part)));
                self.transmit(&slices)
            }
        }
    }

    fn fail(self, error: &Error) -> bool {
        if error.is_fault() {
            let opcode = self.format.opcode;
            error!(request = ?self.request, ?opcode, %error, "a request failed");
        }
        self.refuse(error.errno())
    }

    fn refuse(self, errno: Errno) -> bool {
        let mut head = MessageHead::new();
        let head = head.seal(0, -(errno as i32), self.request.unique);
        self.transmit(&[IoSlice::new(head)])
    }

    fn transmit(self, slices: &[IoSlice<'_>]) -> bool {
        if self.interrupted.is_some() {
            self.connection.interrupts.leave(self.request.unique);
        }
        if self.connection.is_muted() {
            return false;
        }
        let sent = self.connection.device.send(slices);
        if let Some(record) = &self.record {
            record.end();
        }
        self.connection.answered(self.request.unique);
        match sent {
            Ok(()) => true,
            // The caller is gone, or the mount is.
            Err(errno @ (Errno::ENOENT | Errno::ENODEV | Errno::ECONNABORTED)) => {
                let opcode = self.format.opcode;
                debug!(request = ?self.request, ?opcode, %errno, "reply not received");
                false
            }
            Err(errno) => {
                let opcode = self.format.opcode;
                error!(request = ?self.request, ?opcode, %errno, "the kernel rejected a reply");
                false
            }
        }
    }
}
