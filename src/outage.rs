//! Outages: a line in the log when something cannot be reached, and one when it is back, however many
//! requests fail in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::sync::{Mutex, MutexGuard};

/// What fails for less is made good by trying again, and nobody needs to know.
const SHORT: Duration = Duration::from_secs(2);

/// Something that works only now and then is told of no more often than this.
const QUIET: Duration = Duration::from_mins(1);

/// Whether something works, by what is heard of each request.
#[derive(Debug)]
pub struct Outage {
    words: Words,
    /// Spares those who do well the lock.
    is_on: AtomicBool,
    state: Mutex<State>,
}

/// What the log says.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    pub fails: &'static str,
    pub works: &'static str,
}

/// Of a store of metadata, whichever it is.
pub const METADATA: Words =
    Words { fails: "the metadata cannot be reached", works: "the metadata can be reached again" };

/// Of a store of objects.
pub const OBJECTS: Words =
    Words { fails: "the object store fails", works: "the object store works again" };

#[derive(Debug, Default)]
struct State {
    /// The first failure since something went well.
    since: Option<Instant>,
    /// Whether this outage was told.
    is_told: bool,
    /// When one was told last.
    last: Option<Instant>,
}

impl Outage {
    pub fn new(words: Words) -> Self {
        Self { words, is_on: AtomicBool::new(false), state: Mutex::default() }
    }

    /// A request has failed and will be made again. The cause names the place.
    pub fn failed(&self, cause: &dyn std::fmt::Display) {
        let mut state = self.lock();
        self.is_on.store(true, Ordering::Relaxed);
        let since = *state.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SHORT {
            self.tell(&mut state, cause);
        }
    }

    /// A request has failed for good: somebody is told that it did.
    pub fn gave_up(&self, cause: &dyn std::fmt::Display) {
        let mut state = self.lock();
        self.is_on.store(true, Ordering::Relaxed);
        state.since.get_or_insert_with(Instant::now);
        self.tell(&mut state, cause);
    }

    /// Something went well.
    pub fn worked(&self, place: &str) {
        if !self.is_on() {
            return;
        }
        let mut state = self.lock();
        self.is_on.store(false, Ordering::Relaxed);
        let Some(since) = state.since.take() else { return };
        if std::mem::take(&mut state.is_told) {
            let lasted = since.elapsed().as_secs_f64();
            info!(place, "{}, after {lasted:.1} s", self.words.works);
        }
    }

    /// Whether something has failed since anything went well.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn tell(&self, state: &mut State, cause: &dyn std::fmt::Display) {
        let is_recent = state.last.is_some_and(|last| last.elapsed() < QUIET);
        if state.is_told || is_recent {
            return;
        }
        state.is_told = true;
        state.last = Some(Instant::now());
        warn!("{}: {cause}", self.words.fails);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A log that tests can read.
#[cfg(test)]
pub mod testing {
    use crate::sync::Mutex;
    use std::io;
    use std::sync::Arc;

    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    pub struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Log {
        /// What this thread logs, while the guard lives.
        pub fn begin() -> (Self, DefaultGuard) {
            let log = Self::default();
            let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone());
            (log, tracing::subscriber::set_default(subscriber.finish()))
        }

        pub fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().clone()).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Log;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_one_line_and_its_end_another() {
        let (log, _guard) = Log::begin();
        let outage = Outage::new(METADATA);
        for _ in 0..100 {
            outage.failed(&"redis://h/1: refused");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(outage.is_on());
        outage.worked("redis://h/1");
        outage.worked("redis://h/1");
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains("redis://h/1: refused"),
            "{lines:?}"
        );
        assert!(lines[1].contains("reached again, after 100.0 s"), "{lines:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_soon_made_good_is_not_told() {
        let (log, _guard) = Log::begin();
        let outage = Outage::new(METADATA);
        for _ in 0..1000 {
            outage.failed(&"status 503");
            tokio::time::sleep(Duration::from_millis(100)).await;
            outage.worked("s3://b/");
        }
        assert_eq!(log.lines(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_over_and_over_is_told_now_and_then() {
        let (log, _guard) = Log::begin();
        let outage = Outage::new(METADATA);
        for _ in 0..600 {
            outage.gave_up(&"status 403");
            outage.worked("s3://b/");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(log.lines().len(), 20, "ten minutes, two lines each");
    }
}
