//! The multiplexer: one connection that many requests share, driven by the tasks that wait for
//! replies.
//!
//! No task owns the socket. A request appends its commands to a common buffer, and one of the
//! waiting tasks reads and writes for all of them. A request that is alone never leaves its task;
//! with many in flight, one read brings the replies of many and one write sends the commands of
//! many.
//!
//! The socket's readiness wakes [`SocketWaker`], which wakes the task that has waited longest. The
//! invariant that keeps the connection going: while I/O is `due` and a task waits, one of the
//! waiting tasks has been woken and has not run yet. So a task that runs does the I/O that is due,
//! and a task that leaves wakes another.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use redis::Pipeline;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::request_queue::{NoReply, RequestId, RequestQueue, Response};
use super::socket::{IoOutcome, Socket, Stream};
use crate::sync::{Mutex, MutexGuard};

/// Requests in flight. Further ones wait for a permit.
const MAX_REQUESTS: usize = 1024;

/// From this many bytes on, commands are sent without waiting for those of other tasks: the server
/// can start on them while other requests are planned.
const SEND_AT: usize = 16 << 10;

pub(super) struct Multiplexer {
    /// The server's name in errors.
    peer: String,
    shared: Mutex<Shared>,
    socket_waker: Waker,
    permits: Semaphore,
    dead: AtomicBool,
}

/// State that all waiting tasks share.
struct Shared {
    queue: RequestQueue,
    /// Packed commands that the socket does not have yet.
    out: Vec<u8>,
    /// None while a task does I/O on it, and when the connection is dead.
    socket: Option<Socket>,
    /// There is something to read or to write.
    due: bool,
    /// I/O became due while a task was doing I/O: it goes on.
    due_again: bool,
    /// Why the connection is dead.
    closed: Option<String>,
}

/// Work to do after the lock is released: wakers and dropped streams may call back.
#[derive(Default)]
struct Deferred {
    wakers: Vec<Waker>,
    socket: Option<Socket>,
}

impl Multiplexer {
    pub fn new(peer: String, stream: Stream) -> Arc<Self> {
        let shared = Shared {
            queue: RequestQueue::default(),
            out: Vec::new(),
            socket: Some(Socket::new(stream)),
            due: false,
            due_again: false,
            closed: None,
        };
        Arc::new_cyclic(|multiplexer| Self {
            peer,
            shared: Mutex::new(shared),
            socket_waker: Waker::from(Arc::new(SocketWaker(multiplexer.clone()))),
            permits: Semaphore::new(MAX_REQUESTS),
            dead: AtomicBool::new(false),
        })
    }

    /// Sends all commands at once and waits for their replies. Errors of single commands are among
    /// the values. Dropping the future revokes nothing: the server may still execute the commands.
    pub async fn exchange(&self, pipe: &Pipeline) -> Response {
        if pipe.is_empty() {
            return Ok(Vec::new());
        }
        // The reply returns the permit, which may be after the caller has left. A dead connection
        // has no permits; the poll below reports that.
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        PendingRequest { multiplexer: self, state: RequestState::New(pipe) }.await
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Closes the connection. Requests without a reply fail.
    pub fn close(&self, cause: &str) {
        let mut deferred = Deferred::default();
        self.close_locked(&mut self.shared.lock(), cause.to_owned(), &mut deferred);
        deferred.run();
    }

    /// Returns since when the oldest request has been waiting.
    pub fn oldest(&self) -> Option<Instant> {
        self.shared.lock().queue.oldest()
    }

    /// Does the I/O that is due. If another task is doing I/O, that task does it.
    fn do_io<'a>(&'a self, mut shared: MutexGuard<'a, Shared>, me: RequestId) {
        let (mut deferred, mut replies) = (Deferred::default(), Vec::new());
        shared.due = false;
        let Some(mut socket) = shared.socket.take() else {
            shared.due_again = true;
            return;
        };
        loop {
            shared.due_again = false;
            shared.queue.mark_handed_to_socket();
            socket.load(&mut shared.out);
            drop(shared);
            let outcome = socket.do_io(&self.socket_waker, &mut replies);
            shared = self.shared.lock();
            // In this order: the replies arrived before anything was sent in this round.
            let (completed, matched) =
                shared.queue.complete(&mut replies, me, &mut deferred.wakers);
            shared.queue.mark_sent(socket.sent());
            self.permits.add_permits(completed);
            // Another task may have closed the connection meanwhile.
            if shared.closed.is_some() {
                deferred.socket = Some(socket);
                break;
            }
            let outcome = match matched.and(outcome) {
                Ok(outcome) => outcome,
                Err(cause) => {
                    shared.socket = Some(socket);
                    let cause = format!("lost the connection to {}: {cause}", self.peer);
                    self.close_locked(&mut shared, cause, &mut deferred);
                    break;
                }
            };
            if outcome == IoOutcome::MoreToRead {
                // Other tasks on this thread run first; then one of the waiting tasks goes on.
                shared.due = true;
                deferred.wakers.extend(shared.queue.first_waker());
            }
            if outcome == IoOutcome::MoreToRead || !shared.due_again {
                shared.socket = Some(socket);
                self.close_if_abandoned(&mut shared, &mut deferred);
                break;
            }
        }
        drop(shared);
        deferred.run();
    }

    /// Closes the connection if commands are unsent and no task waits for them: they must not be
    /// sent later, when another request comes along.
    fn close_if_abandoned(&self, shared: &mut Shared, deferred: &mut Deferred) {
        let unsent =
            shared.queue.is_unsent() || shared.socket.as_ref().is_some_and(Socket::is_unflushed);
        if unsent && shared.queue.has_no_waiters() && shared.socket.is_some() {
            let cause = format!("all requests to {} were given up", self.peer);
            self.close_locked(shared, cause, deferred);
        }
    }

    fn close_locked(&self, shared: &mut Shared, cause: String, deferred: &mut Deferred) {
        if shared.closed.is_some() {
            return;
        }
        deferred.socket = shared.socket.take();
        let in_use = deferred.socket.is_none();
        shared.queue.fail_all(&cause, in_use, &mut deferred.wakers);
        shared.out = Vec::new();
        shared.closed = Some(cause);
        self.dead.store(true, Ordering::Release);
        self.permits.close();
    }
}

impl Shared {
    fn enqueue(&mut self, pipe: &Pipeline, waker: Waker) -> Result<RequestId, NoReply> {
        if let Some(cause) = &self.closed {
            return Err(NoReply::Unsent(cause.clone()));
        }
        let before = self.out.len();
        for command in pipe.cmd_iter() {
            command.write_packed_command(&mut self.out);
        }
        Ok(self.queue.push(pipe.len(), self.out.len() - before, waker))
    }

    /// Returns the task to wake when a task leaves that may have been woken to do I/O.
    fn successor(&self) -> Option<Waker> {
        if self.due { self.queue.first_waker() } else { None }
    }
}

/// A request, from queueing its commands to taking the reply.
struct PendingRequest<'a> {
    multiplexer: &'a Multiplexer,
    state: RequestState<'a>,
}

enum RequestState<'a> {
    New(&'a Pipeline),
    Queued(RequestId),
    Done,
}

impl Future for PendingRequest<'_> {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let multiplexer = self.multiplexer;
        let mut shared = multiplexer.shared.lock();
        let id = match self.state {
            RequestState::New(pipe) => {
                let id = match shared.enqueue(pipe, cx.waker().clone()) {
                    Ok(id) => id,
                    Err(no_reply) => return Poll::Ready(Err(no_reply)),
                };
                self.state = RequestState::Queued(id);
                if !shared.queue.has_one_waiter() && shared.out.len() < SEND_AT {
                    // Other tasks that can run now get to add their commands to the same write.
                    if !std::mem::replace(&mut shared.due, true) {
                        drop(shared);
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                shared.due = true;
                id
            }
            RequestState::Queued(id) => id,
            RequestState::Done => return Poll::Pending,
        };
        let mut response = shared.queue.take(id);
        if response.is_none() {
            shared.queue.set_waker(id, cx.waker());
            if !shared.due {
                return Poll::Pending;
            }
            multiplexer.do_io(shared, id);
            shared = multiplexer.shared.lock();
            response = shared.queue.take(id);
        }
        let Some(response) = response else { return Poll::Pending };
        self.state = RequestState::Done;
        let successor = shared.successor();
        drop(shared);
        wake(successor);
        Poll::Ready(response)
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let RequestState::Queued(id) = self.state else { return };
        let mut deferred = Deferred::default();
        let mut shared = self.multiplexer.shared.lock();
        shared.queue.give_up(id);
        self.multiplexer.close_if_abandoned(&mut shared, &mut deferred);
        let successor = shared.successor();
        drop(shared);
        wake(successor);
        deferred.run();
    }
}

impl Deferred {
    fn run(self) {
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The waker that the socket gets. It does not keep the multiplexer alive: the multiplexer owns the
/// socket, and the socket holds the waker.
struct SocketWaker(Weak<Multiplexer>);

impl Wake for SocketWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(multiplexer) = self.0.upgrade() else { return };
        let first = {
            let mut shared = multiplexer.shared.lock();
            shared.due = true;
            shared.queue.first_waker()
        };
        wake(first);
    }
}
