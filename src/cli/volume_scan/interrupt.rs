//! Ctrl-C and SIGTERM: work stops between two steps, so that everything stays consistent.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::meta::client::Progress;

/// The exit status of a program that SIGINT ended.
const BY_SIGNAL: i32 = 130;

/// Returns the progress that the first signal cancels. The second one ends the program at once.
pub fn cancelled_by_signals() -> anyhow::Result<Arc<Progress>> {
    let progress: Arc<Progress> = Arc::default();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let cancelled = Arc::clone(&progress);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        eprintln!("stopping after the current step; once more to stop at once");
        cancelled.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(BY_SIGNAL);
    });
    Ok(progress)
}
