//! The access log: a line for each operation, for those who read it at that time.
//!
//! All readers of a mount share one ring of lines. A reader is a place in it; one that is too slow loses
//! the oldest lines.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chrono::Local;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};
use crate::meta::Caller;
use crate::sync::{Mutex, MutexGuard};

/// Lines kept for readers that are slow.
const KEPT: usize = 10240;
/// Bytes of these lines at most.
const BYTES: usize = 1 << 20;
/// Readers of a mount at the same time.
const READERS: usize = 16;
/// How long a read waits for more lines.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a read answers if there was no line in that time.
const SILENCE: &[u8] = b"#\n";
/// An operation that took this long is told in the program's own log, too.
const SLOW: Duration = Duration::from_secs(10);

/// The log of one mount.
#[derive(Default)]
pub struct AccessLog {
    ring: Mutex<Ring>,
    /// How many readers there are: all that an operation looks at if there is none.
    readers: AtomicUsize,
    news: Notify,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the first line; lines are numbered as they come.
    first: u64,
    /// What lines lie in, while there are readers.
    room: Option<Reserved>,
}

/// The log as one reader sees it, from its opening on.
pub struct LogReader {
    log: Arc<AccessLog>,
    place: tokio::sync::Mutex<Place>,
}

struct Place {
    /// The number of the next line.
    next: u64,
    /// Taken and not yet read.
    ready: BytesMut,
}

impl AccessLog {
    pub fn is_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Takes down an operation that has ended. `text` says what and how, without the time it took:
    /// `lookup (1,a): (2,[...]) - OK`; it is asked for only if someone is to see it.
    pub fn line(&self, caller: &Caller, took: Duration, text: impl FnOnce() -> String) {
        let is_slow = took >= SLOW && caller.pid != 0;
        if !is_slow && !self.is_read() {
            return;
        }
        let mut text = text();
        // Writing to a string does not fail.
        let _ = write!(text, " <{:.6}>", took.as_secs_f64());
        if is_slow {
            info!("slow operation: {text}");
        }
        if !self.is_read() {
            return;
        }
        let now = Local::now().format("%Y.%m.%d %H:%M:%S%.6f");
        let Caller { uid, gid, pid, .. } = caller;
        let line = format!("{now} [uid:{uid},gid:{gid},pid:{pid}] {text}\n");
        self.lock().push(line.into());
        self.news.notify_waiters();
    }

    /// One more reader, if there are not too many.
    pub(super) fn open(self: &Arc<Self>, memory: &Budget) -> Result<LogReader> {
        let mut ring = self.lock();
        if self.readers.load(Ordering::Relaxed) >= READERS {
            return Err(Error::TooManyOpen);
        }
        if ring.room.is_none() {
            ring.room = Some(memory.try_reserve(BYTES).ok_or(Error::NoMemory(BYTES))?);
        }
        self.readers.fetch_add(1, Ordering::Relaxed);
        let place = Place { next: ring.end(), ready: BytesMut::new() };
        Ok(LogReader { log: Arc::clone(self), place: tokio::sync::Mutex::new(place) })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

impl Ring {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > KEPT || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }

    /// The number of the line that comes next.
    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// The line of this number, or the oldest after it.
    fn line(&self, number: u64) -> Option<(u64, &Bytes)> {
        let number = number.max(self.first);
        let place = usize::try_from(number - self.first).ok()?;
        self.lines.get(place).map(|line| (number, line))
    }
}

impl LogReader {
    /// The next bytes: as many as asked for, or what there is after a second.
    ///
    /// If the future is dropped, nothing is lost.
    pub async fn read(&self, len: usize) -> Bytes {
        let mut place = self.place.lock().await;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut news = std::pin::pin!(self.log.news.notified());
            // From here on nothing is missed.
            news.as_mut().enable();
            place.take(&self.log.lock(), len);
            if place.ready.len() >= len || timeout_at(deadline, news).await.is_err() {
                break;
            }
        }
        if place.ready.is_empty() {
            return Bytes::from_static(&SILENCE[..len.min(SILENCE.len())]);
        }
        let count = len.min(place.ready.len());
        place.ready.split_to(count).freeze()
    }
}

impl Place {
    /// Takes lines until there are `len` bytes.
    fn take(&mut self, ring: &Ring, len: usize) {
        while self.ready.len() < len
            && let Some((number, line)) = ring.line(self.next)
        {
            self.ready.extend_from_slice(line);
            self.next = number + 1;
        }
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        let mut ring = self.log.lock();
        if self.log.readers.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Nobody will ask for them; numbers go on.
            let first = ring.end();
            *ring = Ring { first, ..Ring::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller { pid: 42, ..Caller::user(7, 8) }
    }

    fn opened(log: &Arc<AccessLog>) -> LogReader {
        log.open(&Budget::new(8 << 20)).unwrap()
    }

    fn op(text: &'static str) -> impl FnOnce() -> String {
        move || text.to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_says_when_who_what_and_how_long() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        log.line(&caller(), Duration::from_micros(407), op("lookup (1,a): (2,[]) - OK"));
        let line = String::from_utf8(reader.read(4096).await.to_vec()).unwrap();
        let (time, rest) = line.split_at(26);
        assert_eq!(rest, " [uid:7,gid:8,pid:42] lookup (1,a): (2,[]) - OK <0.000407>\n");
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000.00.00 00:00:00.000000");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_after_a_second() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        let begun = Instant::now();
        assert_eq!(reader.read(4096).await, SILENCE);
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_may_be_read_in_pieces() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        log.line(&caller(), Duration::ZERO, op("statfs (1) - OK"));
        let first = reader.read(10).await;
        let rest = reader.read(4096).await;
        let whole = [first, rest].concat();
        assert!(whole.ends_with(b"] statfs (1) - OK <0.000000>\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_is_given_up_loses_nothing() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        log.line(&caller(), Duration::ZERO, op("open (2) - OK"));
        let given_up = tokio::time::timeout(Duration::from_millis(10), reader.read(4096)).await;
        assert!(given_up.is_err());
        assert!(reader.read(4096).await.ends_with(b"] open (2) - OK <0.000000>\n"));
    }

    #[test]
    fn nothing_is_asked_for_without_readers() {
        let log = Arc::new(AccessLog::default());
        let asked = || panic!("nobody reads");
        log.line(&caller(), Duration::from_millis(1), asked);
        let reader = opened(&log);
        assert!(log.is_read());
        drop(reader);
        assert!(!log.is_read());
        log.line(&caller(), Duration::from_millis(1), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn each_reader_sees_every_line_and_a_slow_one_loses_the_oldest() {
        let log = Arc::new(AccessLog::default());
        let (slow, quick) = (opened(&log), opened(&log));
        log.line(&caller(), Duration::ZERO, op("early (1) - OK"));
        assert!(quick.read(4096).await.windows(5).any(|part| part == b"early"));
        for _ in 0..KEPT {
            log.line(&caller(), Duration::ZERO, op("x - OK"));
        }
        log.line(&caller(), Duration::ZERO, op("late (1) - OK"));
        for reader in [slow, quick] {
            let mut text = Vec::new();
            loop {
                let bytes = reader.read(1 << 20).await;
                if bytes == SILENCE {
                    break;
                }
                text.extend_from_slice(&bytes);
            }
            let text = String::from_utf8(text).unwrap();
            assert!(text.lines().count() <= KEPT && text.len() <= BYTES);
            assert!(!text.contains("early") && text.lines().last().unwrap().contains("late"));
        }
    }

    #[test]
    fn readers_are_few_and_what_they_share_is_counted() {
        let log = Arc::new(AccessLog::default());
        let memory = Budget::new(2 * BYTES);
        let readers: Vec<_> = (0..READERS).map(|_| log.open(&memory).unwrap()).collect();
        assert!(matches!(log.open(&memory), Err(Error::TooManyOpen)));
        assert_eq!(memory.used(), BYTES);
        drop(readers);
        assert_eq!(memory.used(), 0);
        let _others = memory.try_reserve(memory.capacity()).unwrap();
        assert!(matches!(log.open(&memory), Err(Error::NoMemory(_))));
        assert!(!log.is_read());
    }
}
