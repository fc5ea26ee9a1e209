//! Receiving: one task that reads requests and dispatches them.
//!
//! It runs on the threads of the runtime, where the replies of the stores arrive as well: a single
//! request is received, processed and replied to on one thread, without waking another. While more
//! requests are waiting, large reads and writes go to their own tasks, so that copying their data
//! delays no other request.

use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fuser::InitFlags;
use nix::errno::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::SessionEnd;
use super::connection::Connection;
use super::device::Closed;
use super::dispatch::{dispatch, is_bulk, needs_reply};
use super::receive_buffer::{BufferPool, ReceiveBuffer};
use crate::fuse::file_system::FileSystem;

/// A request, or the end of the mount, which the kernel reports as an error of the device.
const EVENTS: Interest = Interest::READABLE.add(Interest::ERROR);

/// Requests received in a row before other tasks of the thread run.
const IN_A_ROW: usize = 32;

/// The state of the receiving task.
pub struct Receiver<F> {
    pub file_system: Arc<F>,
    pub connection: Arc<Connection>,
    pub agreed: InitFlags,
    pub pool: Arc<BufferPool>,
    pub stopping: CancellationToken,
    pub ended: watch::Sender<Option<SessionEnd>>,
}

/// The descriptor, for the runtime to poll.
struct Readable(Arc<Connection>);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.device.as_fd().as_raw_fd()
    }
}

/// Registers the descriptor with the runtime.
#[allow(unsafe_code, reason = "there is no safe call to poll a descriptor that others use as well")]
fn watch(connection: &Arc<Connection>) -> Result<AsyncFd<Readable>, Errno> {
    let source = Readable(Arc::clone(connection));
    // SAFETY: the connection owns the descriptor, never replaces it, and lives at least as long as
    // the registration, which holds it.
    let watched = unsafe { AsyncFd::register_with_interest(source, EVENTS) };
    watched.map_err(|error| {
        let (_, cause) = error.into_parts();
        Errno::from_raw(cause.raw_os_error().unwrap_or_default())
    })
}

/// A received message.
struct Message {
    buffer: ReceiveBuffer,
    length: usize,
    /// Whether another process received it before.
    is_repeated: bool,
}

impl<F: FileSystem> Receiver<F> {
    /// Receives until the mount is gone or the session is stopped. Must run in the runtime.
    pub async fn run(self: Arc<Self>) {
        // It can be cancelled at any await: nothing is half done there.
        let end = match self.stopping.run_until_cancelled(self.receive()).await {
            None => SessionEnd::Stopped,
            Some(Closed::Unmounted) => SessionEnd::Unmounted,
            Some(Closed::Aborted) => SessionEnd::Aborted,
            Some(Closed::Failed(errno)) => {
                error!(%errno, "cannot receive from /dev/fuse");
                SessionEnd::Failed(errno)
            }
        };
        if end != SessionEnd::Stopped {
            info!(?end, "FUSE session ended");
            guard(|| self.file_system.destroy());
        }
        self.ended.send_replace(Some(end));
    }

    async fn receive(self: &Arc<Self>) -> Closed {
        let source = match watch(&self.connection) {
            Ok(source) => source,
            Err(errno) => return Closed::Failed(errno),
        };
        self.handle_inherited().await;
        let mut free = None;
        loop {
            if free.is_none() {
                free = Some(self.next_buffer().await);
            }
            self.connection.in_flight.wait_for_memory().await;
            // Fails when the runtime is shutting down.
            let Ok(mut ready) = source.ready(EVENTS).await else {
                return Closed::Failed(Errno::ESHUTDOWN);
            };
            for _ in 0..IN_A_ROW {
                if self.stopping.is_cancelled() {
                    break;
                }
                // None if the last request keeps it.
                let Some(mut buffer) = free.take() else { break };
                match self.connection.device.receive_now(buffer.space()) {
                    Ok(Some(length)) => {
                        free = self.serve(Message { buffer, length, is_repeated: false });
                        if !self.connection.in_flight.has_memory() {
                            break;
                        }
                    }
                    Ok(None) => {
                        free = Some(buffer);
                        ready.clear_ready();
                        break;
                    }
                    Err(closed) => return closed,
                }
            }
            drop(ready);
            tokio::task::consume_budget().await;
        }
    }

    /// Handles what the process before received and did not reply to, if the kernel does not send
    /// it again.
    async fn handle_inherited(self: &Arc<Self>) {
        let Some(unanswered) = &self.connection.unanswered else { return };
        for unique in unanswered.inherited() {
            // It is in memory until it has its reply, so that the next process finds it as well.
            let Some(bytes) = unanswered.message(unique) else { continue };
            let buffer = ReceiveBuffer::copy_of(&bytes);
            self.handle(&mut Message { buffer, length: bytes.len(), is_repeated: true });
            tokio::task::consume_budget().await;
        }
    }

    async fn next_buffer(&self) -> ReceiveBuffer {
        match &self.connection.unanswered {
            Some(unanswered) => ReceiveBuffer::Shared(unanswered.space().await),
            None => self.pool.take(),
        }
    }

    /// Handles a message. Returns a buffer for the next one, unless this one is kept.
    fn serve(self: &Arc<Self>, mut message: Message) -> Option<ReceiveBuffer> {
        let bytes = message.buffer.message(message.length);
        let is_bulk = is_bulk(bytes) && self.connection.device.has_more();
        if self.connection.unanswered.is_some() {
            let unique = needs_reply(bytes);
            return self.serve_kept(message, unique, is_bulk);
        }
        if is_bulk {
            let Message { buffer, length, .. } = message;
            let (buffer, next) = self.pool.hand_over(buffer, length);
            self.spawn(Message { buffer, length, is_repeated: false }, None);
            return Some(next);
        }
        self.handle(&mut message);
        Some(message.buffer)
    }

    /// Handles a message that is kept for the next process until it has its reply.
    fn serve_kept(
        self: &Arc<Self>,
        mut message: Message,
        unique: Option<u64>,
        is_bulk: bool,
    ) -> Option<ReceiveBuffer> {
        let unanswered = self.connection.unanswered.as_ref()?;
        if let Some(unique) = unique {
            unanswered.begin(unique);
        }
        if is_bulk && unanswered.is_small(message.length) {
            let Message { buffer, length, is_repeated } = message;
            let copy = ReceiveBuffer::copy_of(buffer.message(length));
            let next = self.settle(buffer, unique, length);
            self.spawn(Message { buffer: copy, length, is_repeated }, None);
            return next;
        }
        if is_bulk {
            self.spawn(message, unique);
            return None;
        }
        self.handle(&mut message);
        self.settle(message.buffer, unique, message.length)
    }

    /// Handles a message in a task of its own, and then its buffer.
    fn spawn(self: &Arc<Self>, mut message: Message, unique: Option<u64>) {
        let guard = self.connection.in_flight.add(message.length);
        let receiver = Arc::clone(self);
        // Tracked by the session, which waits for it.
        self.connection.work.spawn(async move {
            receiver.handle(&mut message);
            match receiver.settle(message.buffer, unique, message.length) {
                Some(ReceiveBuffer::Shared(space)) => {
                    if let Some(unanswered) = &receiver.connection.unanswered {
                        unanswered.give_back(space);
                    }
                }
                Some(own) => receiver.pool.put_back(own),
                None => {}
            }
            drop(guard);
        });
    }

    /// Returns the buffer of a message that was handled or copied, unless it is kept.
    fn settle(
        &self,
        buffer: ReceiveBuffer,
        unique: Option<u64>,
        length: usize,
    ) -> Option<ReceiveBuffer> {
        match (buffer, &self.connection.unanswered) {
            (ReceiveBuffer::Shared(space), Some(unanswered)) => {
                let space = unanswered.settle(space, unique, length, &self.connection.in_flight);
                space.map(ReceiveBuffer::Shared)
            }
            (buffer, _) => Some(buffer),
        }
    }

    /// A handler that panics costs its caller an EIO, by the reply that it drops, and affects
    /// nobody else.
    fn handle(&self, message: &mut Message) {
        let Message { buffer, length, is_repeated } = message;
        guard(|| {
            let (fs, connection) = (&*self.file_system, &self.connection);
            dispatch(fs, connection, self.agreed, buffer, &self.pool, *length, *is_repeated);
        });
    }
}

fn guard(handler: impl FnOnce()) {
    if let Err(cause) = catch_unwind(AssertUnwindSafe(handler)) {
        error!(cause = panic_message(&*cause), "a request handler panicked");
    }
}

fn panic_message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
