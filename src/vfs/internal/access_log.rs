//! The access log: a line for each operation, for those who read it at that time.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chrono::Local;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout_at};
use tracing::info;

use crate::meta::Caller;

/// Lines kept for a reader that is slow; more are lost for it.
const KEPT: usize = 10240;
/// How long a read waits for more lines.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a read answers if there was no line in that time.
const SILENCE: &[u8] = b"#\n";
/// An operation that took this long is told in the program's own log, too.
const SLOW: Duration = Duration::from_secs(10);

/// The log of one mount.
#[derive(Default)]
pub struct AccessLog {
    readers: RwLock<Vec<Reader>>,
    /// How many readers there are: all that an operation looks at if there is none.
    count: AtomicUsize,
}

struct Reader {
    id: u64,
    lines: mpsc::Sender<Bytes>,
}

/// The log as one reader sees it, from its opening on.
pub struct LogReader {
    log: Arc<AccessLog>,
    id: u64,
    lines: Mutex<Lines>,
}

struct Lines {
    coming: mpsc::Receiver<Bytes>,
    /// Taken and not yet read.
    ready: BytesMut,
}

impl AccessLog {
    pub fn is_read(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
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
        let now = Local::now().format("%Y.%m.%d %H:%M:%S%.6f");
        let Caller { uid, gid, pid, .. } = caller;
        let line = Bytes::from(format!("{now} [uid:{uid},gid:{gid},pid:{pid}] {text}\n"));
        for reader in self.readers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // A reader that is too slow loses lines, rather than holding up everyone.
            let _ = reader.lines.try_send(line.clone());
        }
    }

    pub(super) fn open(self: &Arc<Self>) -> LogReader {
        let (lines, coming) = mpsc::channel(KEPT);
        let mut readers = self.write();
        let id = readers.last().map_or(0, |last| last.id + 1);
        readers.push(Reader { id, lines });
        self.count.store(readers.len(), Ordering::Relaxed);
        let lines = Mutex::new(Lines { coming, ready: BytesMut::new() });
        LogReader { log: Arc::clone(self), id, lines }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Reader>> {
        self.readers.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogReader {
    /// The next bytes: as many as asked for, or what there is after a second.
    ///
    /// If the future is dropped, nothing is lost.
    pub async fn read(&self, len: usize) -> Bytes {
        let mut lines = self.lines.lock().await;
        let deadline = Instant::now() + PATIENCE;
        while lines.ready.len() < len {
            match timeout_at(deadline, lines.coming.recv()).await {
                Ok(Some(line)) => lines.ready.extend_from_slice(&line),
                Ok(None) | Err(_) => break,
            }
        }
        if lines.ready.is_empty() {
            return Bytes::from_static(&SILENCE[..len.min(SILENCE.len())]);
        }
        let count = len.min(lines.ready.len());
        lines.ready.split_to(count).freeze()
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        let mut readers = self.log.write();
        readers.retain(|reader| reader.id != self.id);
        self.log.count.store(readers.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller { pid: 42, ..Caller::user(7, 8) }
    }

    fn op(text: &'static str) -> impl FnOnce() -> String {
        move || text.to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_says_when_who_what_and_how_long() {
        let log = Arc::new(AccessLog::default());
        let reader = log.open();
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
        let reader = log.open();
        let begun = Instant::now();
        assert_eq!(reader.read(4096).await, SILENCE);
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_may_be_read_in_pieces() {
        let log = Arc::new(AccessLog::default());
        let reader = log.open();
        log.line(&caller(), Duration::ZERO, op("statfs (1) - OK"));
        let first = reader.read(10).await;
        let rest = reader.read(4096).await;
        let whole = [first, rest].concat();
        assert!(whole.ends_with(b"] statfs (1) - OK <0.000000>\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_is_given_up_loses_nothing() {
        let log = Arc::new(AccessLog::default());
        let reader = log.open();
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
        let reader = log.open();
        assert!(log.is_read());
        drop(reader);
        assert!(!log.is_read());
        log.line(&caller(), Duration::from_millis(1), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn readers_do_not_share_lines_and_a_slow_one_loses_the_newest() {
        let log = Arc::new(AccessLog::default());
        let (slow, quick) = (log.open(), log.open());
        for _ in 0..KEPT {
            log.line(&caller(), Duration::ZERO, op("first (1) - OK"));
        }
        while quick.read(1 << 20).await != SILENCE {}
        log.line(&caller(), Duration::ZERO, op("late (1) - OK"));
        assert!(quick.read(4096).await.windows(4).any(|part| part == b"late"));
        let mut lines = 0;
        loop {
            let bytes = slow.read(1 << 20).await;
            if bytes == SILENCE {
                break;
            }
            assert!(!bytes.windows(4).any(|part| part == b"late"));
            lines += str::from_utf8(&bytes).unwrap().lines().count();
        }
        assert_eq!(lines, KEPT);
    }
}
