//! An answer that is owed to the kernel, to be given exactly once, from any thread.
//!
//! A handler answers at once, or hands the reply to a task and says what an interrupt does to it. A
//! reply that is dropped answers EIO: a caller never waits for something that will not come.

use std::io::IoSlice;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, error};

use super::answer::{Answer, Asked, Content, Parts};
use super::caller::leaves;
use super::decode::Request;
use super::head::Head;
use super::link::Link;
use crate::error::{Error, Result};

/// How long a caller that was asked to end, and handles that itself, is kept waiting: for what may
/// be given up, and for what goes on without it and may have been done.
const ABORTABLE: Duration = Duration::from_secs(1);
const DETACHABLE: Duration = Duration::from_secs(5);

/// The right, and the duty, to answer one request.
#[must_use = "a reply that is dropped answers EIO"]
pub struct Reply<T: Answer> {
    owed: Option<Owed>,
    answer: PhantomData<fn(T)>,
}

struct Owed {
    link: Arc<Link>,
    request: Request,
    asked: Asked,
    /// Length of the request.
    length: usize,
    /// Of the request's place in the table of interrupts, if it has one.
    interrupted: Option<CancellationToken>,
    /// Counts as work in flight until answered.
    _work: TaskTrackerToken,
}

impl<T: Answer> Reply<T> {
    pub(super) fn new(link: &Arc<Link>, request: Request, asked: Asked, length: usize) -> Self {
        let (work, link) = (link.work.token(), Arc::clone(link));
        let owed = Owed { link, request, asked, length, interrupted: None, _work: work };
        Self { owed: Some(owed), answer: PhantomData }
    }

    /// Answers. False if nobody takes the answer any more: a handle that it carries has no holder
    /// and no release will follow.
    pub fn send(mut self, result: Result<T>) -> bool {
        let Some(owed) = self.owed.take() else { return false };
        match result {
            Ok(answer) => owed.answer(answer),
            Err(error) => owed.fail(&error),
        }
    }

    /// Answers an error that is none of ours, such as ENOSYS.
    pub fn refuse(mut self, errno: Errno) -> bool {
        self.owed.take().is_some_and(|owed| owed.refuse(errno))
    }

    /// A token that is cancelled when the caller is interrupted: by a signal, or because it is
    /// killed. The request is still to be answered.
    pub fn interrupted(&mut self) -> CancellationToken {
        self.owed.as_mut().map_or_else(CancellationToken::new, |owed| {
            let enter = || owed.link.interrupts.enter(owed.request.unique);
            owed.interrupted.get_or_insert_with(enter).clone()
        })
    }

    /// Answers with what the task finds, however long that takes: an interrupt does nothing.
    pub fn spawn(mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        // Known, so that an interrupt is not taken for an early one.
        drop(self.interrupted());
        self.task(|reply| async move {
            reply.send(work.await);
        });
    }

    /// Answers with what the task finds; any signal drops the task and answers EINTR. For waits of
    /// which programs expect that, such as for a lock.
    pub fn spawn_interruptible(mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        let interrupted = self.interrupted();
        self.abort_on(async move { interrupted.cancelled().await }, work);
    }

    /// Answers with what the task finds; a caller that dies drops the task, and one that was asked to
    /// end soon does. For work that may be abandoned at any point, such as reading.
    pub fn spawn_abortable(mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        let left = self.left(ABORTABLE);
        self.abort_on(left, work);
    }

    /// Answers with what the task finds; a caller that dies gets EINTR while the task runs on to its
    /// end, as a commit must, and one that was asked to end does so later. What the task then finds,
    /// and nobody was told, goes to `orphan`: a handle that was opened has to be closed there.
    pub fn spawn_detachable(
        mut self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        orphan: impl FnOnce(T) + Send + 'static,
    ) {
        let left = self.left(DETACHABLE);
        self.task(|reply| async move {
            let mut work = pin!(work);
            tokio::select! {
                biased;
                result = &mut work => {
                    reply.send(result);
                    return;
                }
                () = left => {}
            }
            let request = reply.request();
            reply.send(Err(Error::Interrupted));
            match work.await {
                Ok(found) => orphan(found),
                Err(error) if error.is_fault() => {
                    error!(?request, %error, "an operation failed after its caller had left");
                }
                Err(_) => {}
            }
        });
    }

    fn abort_on(
        self,
        left: impl Future<Output = ()> + Send + 'static,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) {
        self.task(|reply| async move {
            let result = tokio::select! {
                biased;
                result = work => result,
                () = left => Err(Error::Interrupted),
            };
            reply.send(result);
        });
    }

    /// Ends when the caller waits no longer.
    fn left(&mut self, patience: Duration) -> impl Future<Output = ()> + Send + 'static {
        let pid = self.request().map_or(0, |request| request.pid);
        leaves(self.interrupted(), pid, patience)
    }

    fn task<F>(self, task: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(owed) = &self.owed else { return };
        let link = Arc::clone(&owed.link);
        let burden = link.load.add(owed.length);
        let task = task(self);
        link.work.spawn_on(
            async move {
                task.await;
                drop(burden);
            },
            &link.runtime,
        );
    }

    fn request(&self) -> Option<Request> {
        self.owed.as_ref().map(|owed| owed.request)
    }
}

impl Reply<Content> {
    /// Answers a read with data that lies in several places, without copying or keeping it.
    pub fn send_slices(mut self, parts: &[&[u8]]) -> bool {
        let Some(owed) = self.owed.take() else { return false };
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if u32::try_from(length).map_or(true, |length| length > owed.asked.size) {
            return owed.refuse(Errno::EIO);
        }
        let mut head = Head::new();
        let mut slices = Vec::with_capacity(1 + parts.len());
        slices.push(IoSlice::new(head.seal(length, 0, owed.request.unique)));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        owed.transmit(&slices)
    }
}

impl<T: Answer> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(owed) = self.owed.take() {
            error!(request = ?owed.request, opcode = ?owed.asked.opcode, "a request got no answer");
            owed.refuse(Errno::EIO);
        }
    }
}

impl Owed {
    fn answer(self, answer: impl Answer) -> bool {
        let unique = self.request.unique;
        let mut head = Head::new();
        match answer.encode(self.asked, &mut head) {
            Err(errno) => self.refuse(errno),
            Ok(Parts::None) => self.transmit(&[IoSlice::new(head.seal(0, 0, unique))]),
            Ok(Parts::One(part)) => {
                let head = head.seal(part.len(), 0, unique);
                self.transmit(&[IoSlice::new(head), IoSlice::new(&part)])
            }
            Ok(Parts::Many(parts)) => {
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
            error!(request = ?self.request, opcode = ?self.asked.opcode, %error, "failed");
        }
        self.refuse(error.errno())
    }

    fn refuse(self, errno: Errno) -> bool {
        let mut head = Head::new();
        let head = head.seal(0, -(errno as i32), self.request.unique);
        self.transmit(&[IoSlice::new(head)])
    }

    fn transmit(self, slices: &[IoSlice<'_>]) -> bool {
        if self.interrupted.is_some() {
            self.link.interrupts.leave(self.request.unique);
        }
        match self.link.device.send(slices) {
            Ok(()) => true,
            // The caller is gone, or the mount is.
            Err(errno @ (Errno::ENOENT | Errno::ENODEV | Errno::ECONNABORTED)) => {
                debug!(request = ?self.request, opcode = ?self.asked.opcode, %errno, "unheard");
                false
            }
            Err(errno) => {
                let opcode = self.asked.opcode;
                error!(request = ?self.request, ?opcode, %errno, "the kernel refused an answer");
                false
            }
        }
    }
}
