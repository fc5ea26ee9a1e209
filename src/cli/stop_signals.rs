//! The signals that ask a command to stop.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::meta::client::Progress;

/// The exit status of a program that SIGINT ended.
const BY_SIGNAL: i32 = 130;

/// SIGTERM, SIGINT and SIGHUP.
pub struct StopSignals([(&'static str, Signal); 3]);

impl StopSignals {
    /// Installs the handlers. From now on none of these signals ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        Ok(Self([
            ("SIGTERM", signal(SignalKind::terminate())?),
            ("SIGINT", signal(SignalKind::interrupt())?),
            ("SIGHUP", signal(SignalKind::hangup())?),
        ]))
    }

    /// Waits for a signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        let [term, int, hup] = &mut self.0;
        tokio::select! {
            _ = term.1.recv() => term.0,
            _ = int.1.recv() => int.0,
            _ = hup.1.recv() => hup.0,
        }
    }
}

/// Returns the progress that the first signal cancels, so that work stops between two steps. The
/// second one ends the program at once.
pub fn cancelled_by_signals() -> io::Result<Arc<Progress>> {
    let mut signals = StopSignals::listen()?;
    let progress: Arc<Progress> = Arc::default();
    let cancelled = Arc::clone(&progress);
    tokio::spawn(async move {
        signals.next().await;
        eprintln!("stopping after the current step; once more to stop at once");
        cancelled.cancel();
        signals.next().await;
        std::process::exit(BY_SIGNAL);
    });
    Ok(progress)
}
