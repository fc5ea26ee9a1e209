//! Busy polling: an idle thread polls for events for a moment before it sleeps.
//!
//! Waking a thread on an idle processor takes 50 microseconds and more on a virtual machine, longer
//! than most requests. Requests come in bursts, and so do the replies of a server nearby: a thread
//! that was woken soon after it fell asleep will probably be needed again as soon, and spins for that
//! long. While it spins, it yields to every other thread on its processor.

mod epoll;
mod poller_slot;
mod spin_estimate;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::runtime::{Builder, Handle, Runtime};

use self::epoll::epoll_of;
use self::poller_slot::{Generation, PollerSlot};
use self::spin_estimate::SpinEstimate;
use crate::error::{Error, Result};

/// The environment variable with the longest spin, in microseconds; 0 turns busy polling off.
const VARIABLE: &str = "JFS_BUSY_POLL";
const DEFAULT_LIMIT: Duration = Duration::from_micros(200);

thread_local! {
    /// Since when this thread has been waiting for events, if it is in the slot.
    static WAITING: Cell<Option<(Generation, Instant)>> = const { Cell::new(None) };
}

/// The state that the threads of one runtime share.
pub struct BusyPoll {
    estimate: SpinEstimate,
    slot: PollerSlot,
    /// The runtime's epoll descriptor: readable while there are events. Not set if it was not found;
    /// threads then sleep at once.
    events: OnceLock<OwnedFd>,
}

impl BusyPoll {
    /// Returns `None` if busy polling is turned off, or if there is only one processor: the process
    /// that a thread waits for needs it.
    pub fn from_environment(processors: usize) -> Result<Option<Arc<Self>>> {
        let limit = match std::env::var(VARIABLE) {
            Ok(value) if !value.is_empty() => parse(&value)?,
            _ => DEFAULT_LIMIT,
        };
        Ok((processors > 1 && !limit.is_zero()).then(|| Arc::new(Self::new(limit))))
    }

    fn new(limit: Duration) -> Self {
        Self {
            estimate: SpinEstimate::new(limit),
            slot: PollerSlot::default(),
            events: OnceLock::new(),
        }
    }

    /// Builds a runtime whose threads busy-poll. If its epoll descriptor cannot be found, the threads
    /// sleep as in any other runtime.
    pub fn build(self: &Arc<Self>, builder: &mut Builder) -> io::Result<Runtime> {
        self.build_with_proc(builder, Path::new("/proc/self"))
    }

    fn build_with_proc(
        self: &Arc<Self>,
        builder: &mut Builder,
        proc: &Path,
    ) -> io::Result<Runtime> {
        let (before, after) = (Arc::clone(self), Arc::clone(self));
        builder.on_thread_park(move || before.before_park());
        builder.on_thread_unpark(move || after.after_unpark());
        let runtime = builder.build()?;
        match epoll_of(&runtime, proc) {
            Ok(events) => {
                let _ = self.events.set(events);
            }
            Err(cause) => tracing::debug!("busy polling is off: {cause}"),
        }
        Ok(runtime)
    }

    fn before_park(&self) {
        let Some(events) = self.events.get() else { return };
        let Some(generation) = self.slot.enter() else { return };
        let since = Instant::now();
        if self.slot.is_spinning(generation) {
            let until = since + self.estimate.get();
            spin(events.as_fd(), until, || self.slot.is_spinning(generation));
        }
        if self.slot.sleep(generation) {
            WAITING.set(Some((generation, since)));
        }
    }

    fn after_unpark(&self) {
        if let Some((generation, since)) = WAITING.take() {
            self.estimate.record(since.elapsed());
            self.slot.leave(generation);
        }
    }
}

fn parse(microseconds: &str) -> Result<Duration> {
    let number = microseconds.parse::<u32>().map_err(|error| {
        Error::bad_input(format!(
            "{VARIABLE} must be a number of microseconds, not {microseconds:?}: {error}"
        ))
    })?;
    Ok(Duration::from_micros(number.into()))
}

/// Spins until there is an event or a task, until the given time, or until `may_spin` is false.
fn spin(events: BorrowedFd<'_>, until: Instant, may_spin: impl Fn() -> bool) {
    let Ok(runtime) = Handle::try_current() else { return };
    // A task that another thread spawns causes no event as long as a thread is awake to see it.
    let queue = runtime.metrics();
    let mut events = [PollFd::new(events, PollFlags::POLLIN)];
    while Instant::now() < until
        && queue.global_queue_depth() == 0
        && poll(&mut events, PollTimeout::ZERO) == Ok(0)
        && may_spin()
    {
        yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    /// A limit below which every wait in these tests is.
    const ALWAYS_SHORT: Duration = Duration::from_mins(1);

    fn busy_polling() -> (Arc<BusyPoll>, Runtime) {
        let busy_poll = Arc::new(BusyPoll::new(ALWAYS_SHORT));
        let mut builder = Builder::new_multi_thread();
        let runtime = busy_poll.build(builder.worker_threads(2).enable_all()).unwrap();
        (busy_poll, runtime)
    }

    /// Runs `run` and returns its result and what it logs on this thread.
    fn logged<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
        let log = Arc::new(std::sync::Mutex::new(Vec::new()));
        let writer = Arc::clone(&log);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || LogWriter(Arc::clone(&writer)))
            .finish();
        let result = tracing::subscriber::with_default(subscriber, run);
        let text = String::from_utf8(log.lock().unwrap().clone()).unwrap();
        (result, text.lines().map(str::to_owned).collect())
    }

    struct LogWriter(Arc<std::sync::Mutex<Vec<u8>>>);

    impl io::Write for LogWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A thread outside of the runtime that sends each byte back.
    fn echo(mut socket: std::os::unix::net::UnixStream) -> thread::JoinHandle<io::Result<u64>> {
        thread::spawn(move || {
            let mut back = socket.try_clone()?;
            io::copy(&mut socket, &mut back)
        })
    }

    #[test]
    fn a_burst_of_events_raises_the_estimate() {
        let ((busy_poll, runtime), lines) = logged(busy_polling);
        assert!(busy_poll.events.get().is_some(), "the runtime's epoll descriptor was not found");
        assert!(lines.is_empty(), "{lines:?}");
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = echo(there);
        runtime.block_on(async {
            let burst = tokio::spawn(async move {
                here.set_nonblocking(true)?;
                let mut socket = UnixStream::from_std(here)?;
                for n in 0..200 {
                    socket.write_u8(n).await?;
                    assert_eq!(socket.read_u8().await?, n);
                }
                io::Result::Ok(())
            });
            burst.await.unwrap().unwrap();
        });
        assert_eq!(peer.join().unwrap().unwrap(), 200);
        assert!(!busy_poll.estimate.get().is_zero());
    }

    #[test]
    fn without_the_epoll_descriptor_the_runtime_works_without_busy_polling_and_logs_one_line() {
        let empty = tempfile::tempdir().unwrap();
        let busy_poll = Arc::new(BusyPoll::new(ALWAYS_SHORT));
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).enable_all();
        let (runtime, lines) =
            logged(|| busy_poll.build_with_proc(&mut builder, empty.path()).unwrap());
        assert!(busy_poll.events.get().is_none());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("DEBUG") && lines[0].contains("busy polling is off"),
            "{lines:?}"
        );
        runtime.block_on(async {
            for n in 0..100 {
                assert_eq!(tokio::spawn(async move { n }).await.unwrap(), n);
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        });
        assert!(busy_poll.estimate.get().is_zero());
    }

    #[test]
    fn a_spinning_thread_sees_tasks_that_another_thread_spawns() {
        let (_busy_poll, runtime) = busy_polling();
        let handle = runtime.handle().clone();
        let spawner = thread::spawn(move || {
            for n in 0..500 {
                let (done, is_done) = mpsc::channel();
                handle.spawn(async move {
                    tokio::task::spawn_blocking(move || n).await.unwrap();
                    done.send(n).unwrap();
                });
                assert_eq!(is_done.recv_timeout(Duration::from_mins(1)), Ok(n));
            }
        });
        spawner.join().unwrap();
    }

    #[test]
    fn a_value_that_is_not_a_number_is_named_in_the_error() {
        let error = parse("fast").unwrap_err().to_string();
        assert!(error.contains("JFS_BUSY_POLL") && error.contains("fast"), "{error}");
        assert_eq!(parse("50").unwrap(), Duration::from_micros(50));
    }

    #[test]
    fn with_one_processor_there_is_no_busy_polling() {
        assert!(BusyPoll::from_environment(1).unwrap().is_none());
    }
}
