//! Outages: one log line when a service becomes unreachable, and one when it is back, however many
//! requests fail in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::sync::{Mutex, MutexGuard};

/// Shorter failures are hidden by retries and are not logged.
const MIN_DURATION: Duration = Duration::from_secs(2);

/// A service that fails intermittently is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Tracks whether a service works, from the outcome of each request.
#[derive(Debug)]
pub struct Outage {
    messages: Messages,
    /// Lets successful requests skip the lock.
    is_on: AtomicBool,
    state: Mutex<State>,
}

/// The log lines for a failure and a recovery.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    pub fails: &'static str,
    pub works: &'static str,
}

/// For a metadata engine.
pub const METADATA: Messages = Messages {
    fails: "the metadata cannot be reached",
    works: "the metadata can be reached again",
};

/// For an object store.
pub const OBJECTS: Messages =
    Messages { fails: "the object store fails", works: "the object store works again" };

#[derive(Debug, Default)]
struct State {
    /// The first failure since the last success.
    since: Option<Instant>,
    /// Whether this outage was logged.
    is_logged: bool,
    /// When an outage was last logged.
    last: Option<Instant>,
}

impl Outage {
    pub fn new(messages: Messages) -> Self {
        Self { messages, is_on: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Records a failed request that will be retried. The cause names the place.
    pub fn failed(&self, cause: &dyn std::fmt::Display) {
        let mut state = self.lock();
        self.is_on.store(true, Ordering::Relaxed);
        let since = *state.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= MIN_DURATION {
            self.log(&mut state, cause);
        }
    }

    /// Records a request that failed for good, whose caller gets the error.
    pub fn gave_up(&self, cause: &dyn std::fmt::Display) {
        let mut state = self.lock();
        self.is_on.store(true, Ordering::Relaxed);
        state.since.get_or_insert_with(Instant::now);
        self.log(&mut state, cause);
    }

    /// Records a success.
    pub fn succeeded(&self, place: &str) {
        if !self.is_on() {
            return;
        }
        let mut state = self.lock();
        self.is_on.store(false, Ordering::Relaxed);
        let Some(since) = state.since.take() else { return };
        if std::mem::take(&mut state.is_logged) {
            let lasted = since.elapsed().as_secs_f64();
            info!(place, "{}, after {lasted:.1} s", self.messages.works);
        }
    }

    /// Whether a request has failed since the last success.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn log(&self, state: &mut State, cause: &dyn std::fmt::Display) {
        let is_recent = state.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL);
        if state.is_logged || is_recent {
            return;
        }
        state.is_logged = true;
        state.last = Some(Instant::now());
        warn!("{}: {cause}", self.messages.fails);
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
        /// Captures the log of this thread while the guard exists.
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
    async fn an_outage_is_logged_once_and_its_end_once() {
        let (log, _guard) = Log::begin();
        let outage = Outage::new(METADATA);
        for _ in 0..100 {
            outage.failed(&"redis://h/1: refused");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(outage.is_on());
        outage.succeeded("redis://h/1");
        outage.succeeded("redis://h/1");
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains("redis://h/1: refused"),
            "{lines:?}"
        );
        assert!(lines[1].contains("reached again, after 100.0 s"), "{lines:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn short_failures_are_not_logged() {
        let (log, _guard) = Log::begin();
        let outage = Outage::new(METADATA);
        for _ in 0..1000 {
            outage.failed(&"status 503");
            tokio::time::sleep(Duration::from_millis(100)).await;
            outage.succeeded("s3://b/");
        }
        assert_eq!(log.lines(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_outages_are_logged_once_a_minute() {
        let (log, _guard) = Log::begin();
        let outage = Outage::new(METADATA);
        for _ in 0..600 {
            outage.gave_up(&"status 403");
            outage.succeeded("s3://b/");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(log.lines().len(), 20, "ten minutes, two lines each");
    }
}
