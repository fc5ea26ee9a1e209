//! Signals that ask the program to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Error, Result};

pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::bad_input(format!("listening for signals: {error}")))
        };
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    /// The name of the next one.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
