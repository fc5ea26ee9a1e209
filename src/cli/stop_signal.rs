//! The signals that end a command early.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for a signal and returns its name. From the first call on, none of them ends the process by
/// itself.
pub async fn stop_signal() -> io::Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
        _ = hangup.recv() => "SIGHUP",
    })
}
