//! Attention: for a moment after its work is done, a thread looks for more before it sleeps.
//!
//! To wake a thread on an idle processor takes 50 microseconds and more on a virtual machine, longer
//! than most requests. Requests come in trains, and so do the answers of a near server: a thread
//! that was woken soon expects to be needed again as soon, and stays awake for that long. While
//! it looks, it lets every other thread of its processor go first.

mod expectation;
mod post;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{read_dir, read_link};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};
use expectation::Expectation;
use post::{Post, Turn};

/// The longest look, in microseconds; 0 switches it off.
const SETTING: &str = "JFS_BUSY_POLL";
const LIMIT: Duration = Duration::from_micros(200);

thread_local! {
    /// Since when this thread waits for events, if it is the one.
    static WAITING: Cell<Option<(Turn, Instant)>> = const { Cell::new(None) };
}

/// What the threads of one runtime share.
pub struct Attention {
    expectation: Expectation,
    post: Post,
    /// Readable while the runtime has events to take.
    events: OnceLock<OwnedFd>,
}

impl Attention {
    /// `None` if it is switched off, or if there is just one processor: who is waited for needs it.
    pub fn from_environment(processors: usize) -> Result<Option<Arc<Self>>> {
        let limit = match std::env::var(SETTING) {
            Ok(value) if !value.is_empty() => parse(&value)?,
            _ => LIMIT,
        };
        Ok((processors > 1 && !limit.is_zero()).then(|| Arc::new(Self::new(limit))))
    }

    fn new(limit: Duration) -> Self {
        Self {
            expectation: Expectation::new(limit),
            post: Post::default(),
            events: OnceLock::new(),
        }
    }

    /// Builds the runtime, whose threads pay attention from then on.
    pub fn build(self: &Arc<Self>, builder: &mut Builder) -> io::Result<Runtime> {
        let (before, after) = (Arc::clone(self), Arc::clone(self));
        builder.on_thread_park(move || before.before_sleep());
        builder.on_thread_unpark(move || after.after_sleep());
        let known = event_queues();
        let runtime = builder.build()?;
        let own = event_queues().difference(&known).next().copied();
        // Without /proc nothing is found, and threads sleep at once, as they would anyway.
        if let Some(events) = own.and_then(keep) {
            let _ = self.events.set(events);
        }
        Ok(runtime)
    }

    fn before_sleep(&self) {
        let Some(events) = self.events.get() else { return };
        let Some(turn) = self.post.enter() else { return };
        let since = Instant::now();
        if self.post.is_looking(turn) {
            let until = since + self.expectation.get();
            look(events.as_fd(), until, || self.post.is_looking(turn));
        }
        if self.post.sleep(turn) {
            WAITING.set(Some((turn, since)));
        }
    }

    fn after_sleep(&self) {
        if let Some((turn, since)) = WAITING.take() {
            self.expectation.learn(since.elapsed());
            self.post.leave(turn);
        }
    }
}

fn parse(microseconds: &str) -> Result<Duration> {
    let number = microseconds.parse::<u32>().map_err(|error| {
        Error::bad_input(format!("{SETTING} is microseconds, not {microseconds:?}: {error}"))
    })?;
    Ok(Duration::from_micros(number.into()))
}

/// Returns when there is something to do, at that time, or when somebody else is at it.
fn look(events: BorrowedFd<'_>, until: Instant, goes_on: impl Fn() -> bool) {
    let Ok(runtime) = Handle::try_current() else { return };
    // What other threads hand in makes no event as long as a thread is awake to see it.
    let handed_in = runtime.metrics();
    let mut events = [PollFd::new(events, PollFlags::POLLIN)];
    while Instant::now() < until
        && handed_in.global_queue_depth() == 0
        && poll(&mut events, PollTimeout::ZERO) == Ok(0)
        && goes_on()
    {
        yield_now();
    }
}

/// The event queues of the kernel that this process has open.
fn event_queues() -> BTreeSet<RawFd> {
    let Ok(descriptors) = read_dir("/proc/self/fd") else { return BTreeSet::new() };
    let is_queue = |to: &Path| to.as_os_str() == "anon_inode:[eventpoll]";
    descriptors
        .flatten()
        .filter(|one| read_link(one.path()).is_ok_and(|to| is_queue(&to)))
        .filter_map(|one| one.file_name().to_str()?.parse().ok())
        .collect()
}

#[allow(unsafe_code, reason = "the runtime does not lend its descriptor")]
fn keep(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: it was just found open, and belongs to a runtime that the caller holds.
    let lent = unsafe { BorrowedFd::borrow_raw(descriptor) };
    lent.try_clone_to_owned().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    const ALWAYS_SHORT: Duration = Duration::from_mins(1);

    fn attentive() -> (Arc<Attention>, Runtime) {
        let attention = Arc::new(Attention::new(ALWAYS_SHORT));
        let mut builder = Builder::new_multi_thread();
        let runtime = attention.build(builder.worker_threads(2).enable_all()).unwrap();
        (attention, runtime)
    }

    /// A peer outside of the runtime answers each byte.
    fn echo(mut socket: std::os::unix::net::UnixStream) -> thread::JoinHandle<io::Result<u64>> {
        thread::spawn(move || {
            let mut back = socket.try_clone()?;
            io::copy(&mut socket, &mut back)
        })
    }

    #[test]
    fn a_train_of_events_is_expected_to_go_on() {
        let (attention, runtime) = attentive();
        assert!(attention.events.get().is_some(), "the runtime's queue was not found");
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = echo(there);
        runtime.block_on(async {
            let train = tokio::spawn(async move {
                here.set_nonblocking(true)?;
                let mut socket = UnixStream::from_std(here)?;
                for n in 0..200 {
                    socket.write_u8(n).await?;
                    assert_eq!(socket.read_u8().await?, n);
                }
                io::Result::Ok(())
            });
            train.await.unwrap().unwrap();
        });
        assert_eq!(peer.join().unwrap().unwrap(), 200);
        assert!(!attention.expectation.get().is_zero());
    }

    #[test]
    fn what_another_thread_hands_in_is_seen_by_one_that_looks() {
        let (_attention, runtime) = attentive();
        let handle = runtime.handle().clone();
        let handed_in = thread::spawn(move || {
            for n in 0..500 {
                let (done, is_done) = mpsc::channel();
                handle.spawn(async move {
                    tokio::task::spawn_blocking(move || n).await.unwrap();
                    done.send(n).unwrap();
                });
                assert_eq!(is_done.recv_timeout(Duration::from_mins(1)), Ok(n));
            }
        });
        handed_in.join().unwrap();
    }

    #[test]
    fn a_setting_that_is_no_number_is_named() {
        let error = parse("fast").unwrap_err().to_string();
        assert!(error.contains("JFS_BUSY_POLL") && error.contains("fast"), "{error}");
        assert_eq!(parse("50").unwrap(), Duration::from_micros(50));
    }

    #[test]
    fn one_processor_is_left_to_who_is_waited_for() {
        assert!(Attention::from_environment(1).unwrap().is_none());
    }
}
