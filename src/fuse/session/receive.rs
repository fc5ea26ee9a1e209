//! Receiving: one task that takes what the kernel asks and has it answered.
//!
//! It runs on the threads of the runtime, where the answers of the stores arrive as well: a request
//! that is alone is received, carried out and answered on one thread, without waking another. While
//! there is more to receive, large reads and writes go to tasks of their own, so that copying
//! their data holds up nobody.

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

use super::End;
use crate::fuse::buffer::{Buffer, Pool};
use crate::fuse::device::Closed;
use crate::fuse::dispatch::{dispatch, is_bulk};
use crate::fuse::file_system::FileSystem;
use crate::fuse::link::Link;

/// A request, or the end of the mount, which the kernel shows as an error of the device.
const NEWS: Interest = Interest::READABLE.add(Interest::ERROR);

/// Requests received in a row before other tasks of the thread have their turn.
const IN_A_ROW: usize = 32;

/// What receiving needs.
pub struct Receiver<F> {
    pub file_system: Arc<F>,
    pub link: Arc<Link>,
    pub agreed: InitFlags,
    pub pool: Arc<Pool>,
    pub stopping: CancellationToken,
    pub ended: watch::Sender<Option<End>>,
}

/// The descriptor, as the runtime waits for it.
struct Readable(Arc<Link>);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.device.as_fd().as_raw_fd()
    }
}

/// Has the runtime watch the descriptor.
#[allow(unsafe_code, reason = "a descriptor that others use as well is watched by no safe call")]
fn watch(link: &Arc<Link>) -> Result<AsyncFd<Readable>, Errno> {
    let source = Readable(Arc::clone(link));
    // SAFETY: the link owns the descriptor, never exchanges it, and lives at least as long as
    // what watches it, which holds it.
    let watched = unsafe { AsyncFd::register_with_interest(source, NEWS) };
    watched.map_err(|error| {
        let (_, cause) = error.into_parts();
        Errno::from_raw(cause.raw_os_error().unwrap_or_default())
    })
}

/// A message, and how long it is.
struct Message {
    buffer: Buffer,
    length: usize,
}

impl<F: FileSystem> Receiver<F> {
    /// Receives until the mount is gone or the session is told to stop. Must run in the runtime.
    pub async fn run(self: Arc<Self>) {
        // Between two waits nothing is left half done, so it can be stopped at any of them.
        let end = match self.stopping.run_until_cancelled(self.receive()).await {
            None => End::Stopped,
            Some(Closed::Unmounted) => End::Unmounted,
            Some(Closed::Aborted) => End::Aborted,
            Some(Closed::Failed(errno)) => {
                error!(%errno, "cannot receive from /dev/fuse");
                End::Failed(errno)
            }
        };
        if end != End::Stopped {
            info!(?end, "FUSE session is over");
            guard(|| self.file_system.destroy());
        }
        self.ended.send_replace(Some(end));
    }

    async fn receive(self: &Arc<Self>) -> Closed {
        let source = match watch(&self.link) {
            Ok(source) => source,
            Err(errno) => return Closed::Failed(errno),
        };
        let mut buffer = self.pool.take();
        loop {
            self.link.load.room().await;
            // It fails when the runtime is shutting down.
            let Ok(mut ready) = source.ready(NEWS).await else {
                return Closed::Failed(Errno::ESHUTDOWN);
            };
            for _ in 0..IN_A_ROW {
                match self.link.device.receive_now(buffer.space()) {
                    Ok(Some(length)) => {
                        buffer = self.serve(Message { buffer, length });
                        if !self.link.load.has_room() {
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

    /// Has a message answered; yields a buffer for the next one.
    fn serve(self: &Arc<Self>, mut message: Message) -> Buffer {
        if is_bulk(message.buffer.message(message.length)) && self.link.device.has_more() {
            let Message { buffer, length } = message;
            let (buffer, next) = self.pool.hand_over(buffer, length);
            let mut message = Message { buffer, length };
            let burden = self.link.load.add(length);
            let receiver = Arc::clone(self);
            // The tracker of the session: it waits for what it was handed.
            self.link.work.spawn(async move {
                receiver.answer(&mut message);
                receiver.pool.put_back(message.buffer);
                drop(burden);
            });
            return next;
        }
        self.answer(&mut message);
        message.buffer
    }

    /// A handler that panics costs its caller an EIO, by the reply that it drops, and nobody else
    /// anything.
    fn answer(&self, message: &mut Message) {
        let place = (&mut message.buffer, &self.pool);
        guard(|| dispatch(&*self.file_system, &self.link, self.agreed, place, message.length));
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
