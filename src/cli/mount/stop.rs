//! Signals that ask for a clean end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Signals([(&'static str, Signal); 3]);

impl Signals {
    /// From now on none of them ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        Ok(Self([
            ("SIGTERM", signal(SignalKind::terminate())?),
            ("SIGINT", signal(SignalKind::interrupt())?),
            ("SIGHUP", signal(SignalKind::hangup())?),
        ]))
    }

    /// The next one.
    pub async fn next(&mut self) -> &'static str {
        let [term, int, hup] = &mut self.0;
        tokio::select! {
            _ = term.1.recv() => term.0,
            _ = int.1.recv() => int.0,
            _ = hup.1.recv() => hup.0,
        }
    }
}
