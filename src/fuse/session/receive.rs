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
use super::dispatch::{dispatch, is_bulk};
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
        let mut buffer = self.pool.take();
        loop {
            self.connection.in_flight.wait_for_memory().await;
            // Fails when the runtime is shutting down.
            let Ok(mut ready) = source.ready(EVENTS).await else {
                return Closed::Failed(Errno::ESHUTDOWN);
            };
            for _ in 0..IN_A_ROW {
                match self.connection.device.receive_now(buffer.space()) {
                    Ok(Some(length)) => {
                        buffer = self.serve(Message { buffer, length });
                        if !self.connection.in_flight.has_memory() {
                            break;
                        }
                    }
                    Ok(None) => {
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

    /// Handles a message. Returns a buffer for the next one.
    fn serve(self: &Arc<Self>, mut message: Message) -> ReceiveBuffer {
        if is_bulk(message.buffer.message(message.length)) && self.connection.device.has_more() {
            let Message { buffer, length } = message;
            let (buffer, next) = self.pool.hand_over(buffer, length);
            let mut message = Message { buffer, length };
            let guard = self.connection.in_flight.add(length);
            let receiver = Arc::clone(self);
            // Tracked by the session, which waits for it.
            self.connection.work.spawn(async move {
                receiver.handle(&mut message);
                receiver.pool.put_back(message.buffer);
                drop(guard);
            });
            return next;
        }
        self.handle(&mut message);
        message.buffer
    }

    /// A handler that panics costs its caller an EIO, by the reply that it drops, and affects
    /// nobody else.
    fn handle(&self, message: &mut Message) {
        let Message { buffer, length } = message;
        guard(|| {
            let (fs, connection) = (&*self.file_system, &self.connection);
            dispatch(fs, connection, self.agreed, buffer, &self.pool, *length);
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
