//! The receiving threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::{io, thread};

use fuser::InitFlags;
use tokio::sync::watch;
use tracing::{error, info};

use super::End;
use crate::fuse::buffer::Pool;
use crate::fuse::device::Closed;
use crate::fuse::dispatch::dispatch;
use crate::fuse::file_system::FileSystem;
use crate::fuse::link::Link;

/// What the receivers of a session share.
pub struct Team<F> {
    pub file_system: Arc<F>,
    pub link: Arc<Link>,
    pub agreed: InitFlags,
    pub pool: Arc<Pool>,
    pub stopping: Arc<AtomicBool>,
    /// Threads that still receive.
    pub receiving: AtomicUsize,
    pub ended: watch::Sender<Option<End>>,
}

pub fn spawn<F: FileSystem>(number: usize, team: &Arc<Team<F>>) -> io::Result<JoinHandle<()>> {
    let team = Arc::clone(team);
    let thread = thread::Builder::new().name(format!("fuse-{number}"));
    thread.spawn(move || team.run())
}

impl<F: FileSystem> Team<F> {
    fn run(&self) {
        let end = self.receive();
        // The last to leave tells why; all of them leave for the same reason.
        if self.receiving.fetch_sub(1, Ordering::SeqCst) == 1 {
            if end != End::Stopped {
                info!(?end, "FUSE session is over");
                guard(|| self.file_system.destroy());
            }
            self.ended.send_replace(Some(end));
        }
    }

    fn receive(&self) -> End {
        let mut buffer = self.pool.take();
        loop {
            self.link.load.wait_for_room();
            let stop = || self.stopping.load(Ordering::SeqCst);
            let length = match self.link.device.receive(buffer.space(), stop) {
                Ok(length) => length,
                Err(Closed::Stopped) => return End::Stopped,
                Err(Closed::Unmounted) => return End::Unmounted,
                Err(Closed::Aborted) => return End::Aborted,
                Err(Closed::Failed(errno)) => {
                    error!(%errno, "cannot receive from /dev/fuse");
                    return End::Failed(errno);
                }
            };
            let place = (&mut buffer, &self.pool);
            guard(|| dispatch(&*self.file_system, &self.link, self.agreed, place, length));
        }
    }
}

/// A handler that panics costs its caller an EIO, by the reply that it drops, and nobody else
/// anything.
fn guard(handler: impl FnOnce()) {
    if let Err(cause) = catch_unwind(AssertUnwindSafe(handler)) {
        error!(cause = panic_message(&*cause), "a request handler panicked");
    }
}

fn panic_message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
