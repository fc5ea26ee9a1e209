//! The access log: a line for each operation while someone reads it.
//!
//! All readers of a mount share one ring of lines. A reader is a position in it; a slow reader
//! loses the oldest lines.

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

/// Lines kept for slow readers.
const MAX_LINES: usize = 10240;
/// The most bytes of these lines.
const MAX_BYTES: usize = 1 << 20;
/// The most readers of a mount at the same time.
const MAX_READERS: usize = 16;
/// How long a read waits for more lines.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// What a read returns if there was no line in that time.
const NO_LINES: &[u8] = b"#\n";
/// An operation that took this long also goes to the program's own log.
const SLOW: Duration = Duration::from_secs(10);

/// The log of one mount.
#[derive(Default)]
pub struct AccessLog {
    ring: Mutex<Ring>,
    /// The number of readers. Without any, an operation looks at nothing else.
    readers: AtomicUsize,
    new_lines: Notify,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the first line. Lines are numbered in order.
    first: u64,
    /// Memory of the lines, while there are readers.
    memory: Option<Reserved>,
}

/// The log as one reader sees it, from when it was opened.
pub struct LogReader {
    log: Arc<AccessLog>,
    position: tokio::sync::Mutex<ReaderPosition>,
}

struct ReaderPosition {
    /// The number of the next line.
    next: u64,
    /// Taken from the ring and not read yet.
    ready: BytesMut,
}

impl AccessLog {
    pub fn is_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Logs an operation that has ended. `text` describes it without the duration:
    /// `lookup (1,a): (2,[...]) - OK`. It is called only if someone will see the line.
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
        self.new_lines.notify_waiters();
    }

    /// Adds a reader, unless there are too many.
    pub(super) fn open(self: &Arc<Self>, memory: &Budget) -> Result<LogReader> {
        let mut ring = self.lock();
        if self.readers.load(Ordering::Relaxed) >= MAX_READERS {
            return Err(Error::TooManyOpen);
        }
        if ring.memory.is_none() {
            ring.memory = Some(memory.try_reserve(MAX_BYTES).ok_or(Error::NoMemory(MAX_BYTES))?);
        }
        self.readers.fetch_add(1, Ordering::Relaxed);
        let position = ReaderPosition { next: ring.end(), ready: BytesMut::new() };
        Ok(LogReader { log: Arc::clone(self), position: tokio::sync::Mutex::new(position) })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

impl Ring {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }

    /// Returns the number of the next line.
    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// Returns the line with this number, or the oldest after it.
    fn line(&self, number: u64) -> Option<(u64, &Bytes)> {
        let number = number.max(self.first);
        let position = usize::try_from(number - self.first).ok()?;
        self.lines.get(position).map(|line| (number, line))
    }
}

impl LogReader {
    /// Returns the next bytes: as many as asked for, or what there is after a second.
    ///
    /// If the future is dropped, nothing is lost.
    pub async fn read(&self, len: usize) -> Bytes {
        let mut position = self.position.lock().await;
        let deadline = Instant::now() + READ_TIMEOUT;
        loop {
            let mut new_lines = std::pin::pin!(self.log.new_lines.notified());
            // Registered before checking, so that no notification is missed.
            new_lines.as_mut().enable();
            position.take(&self.log.lock(), len);
            if position.ready.len() >= len || timeout_at(deadline, new_lines).await.is_err() {
                break;
            }
        }
        if position.ready.is_empty() {
            return Bytes::from_static(&NO_LINES[..len.min(NO_LINES.len())]);
        }
        let count = len.min(position.ready.len());
        position.ready.split_to(count).freeze()
    }
}

impl ReaderPosition {
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
            // Nobody will read these lines; numbers continue.
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
    async fn a_line_has_time_caller_operation_and_duration() {
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
    async fn a_reader_without_lines_gets_a_comment_after_a_second() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        let begun = Instant::now();
        assert_eq!(reader.read(4096).await, NO_LINES);
        assert_eq!(begun.elapsed(), READ_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_may_be_read_in_several_reads() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        log.line(&caller(), Duration::ZERO, op("statfs (1) - OK"));
        let first = reader.read(10).await;
        let rest = reader.read(4096).await;
        let whole = [first, rest].concat();
        assert!(whole.ends_with(b"] statfs (1) - OK <0.000000>\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_read_loses_nothing() {
        let log = Arc::new(AccessLog::default());
        let reader = opened(&log);
        log.line(&caller(), Duration::ZERO, op("open (2) - OK"));
        let cancelled = tokio::time::timeout(Duration::from_millis(10), reader.read(4096)).await;
        assert!(cancelled.is_err());
        assert!(reader.read(4096).await.ends_with(b"] open (2) - OK <0.000000>\n"));
    }

    #[test]
    fn no_text_is_made_without_readers() {
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
        assert!(quick.read(4096).await.windows(5).any(|bytes| bytes == b"early"));
        for _ in 0..MAX_LINES {
            log.line(&caller(), Duration::ZERO, op("x - OK"));
        }
        log.line(&caller(), Duration::ZERO, op("late (1) - OK"));
        for reader in [slow, quick] {
            let mut text = Vec::new();
            loop {
                let bytes = reader.read(1 << 20).await;
                if bytes == NO_LINES {
                    break;
                }
                text.extend_from_slice(&bytes);
            }
            let text = String::from_utf8(text).unwrap();
            assert!(text.lines().count() <= MAX_LINES && text.len() <= MAX_BYTES);
            assert!(!text.contains("early") && text.lines().last().unwrap().contains("late"));
        }
    }

    #[test]
    fn readers_are_limited_and_their_memory_is_counted() {
        let log = Arc::new(AccessLog::default());
        let memory = Budget::new(2 * MAX_BYTES);
        let readers: Vec<_> = (0..MAX_READERS).map(|_| log.open(&memory).unwrap()).collect();
        assert!(matches!(log.open(&memory), Err(Error::TooManyOpen)));
        assert_eq!(memory.used(), MAX_BYTES);
        drop(readers);
        assert_eq!(memory.used(), 0);
        let _others = memory.try_reserve(memory.capacity()).unwrap();
        assert!(matches!(log.open(&memory), Err(Error::NoMemory(_))));
        assert!(!log.is_read());
    }
}
