//! The signals that stop a mount cleanly, and the one that asks for a flush before.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::stop_signals::StopSignals;

pub enum SignalAction {
    /// Unmount; the name of the signal.
    Stop(&'static str),
    /// Upload all staged blocks before the mount ends.
    Flush,
}

pub struct Signals {
    stop: StopSignals,
    flush: Signal,
}

impl Signals {
    /// Installs the handlers. From now on none of these signals ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { stop: StopSignals::listen()?, flush: signal(SignalKind::user_defined1())? })
    }

    /// Waits for a signal to stop and returns its name.
    pub async fn next_stop(&mut self) -> &'static str {
        self.stop.next().await
    }

    /// Waits for any signal, including SIGUSR1, which `umount --flush` sends.
    pub async fn next_action(&mut self) -> SignalAction {
        // The signal to flush is sent right before the unmount it is for, so it is checked first.
        tokio::select! {
            biased;
            _ = self.flush.recv() => SignalAction::Flush,
            signal = self.stop.next() => SignalAction::Stop(signal),
        }
    }
}
