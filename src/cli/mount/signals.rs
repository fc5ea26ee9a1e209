//! The signals that stop a mount cleanly, and the one that asks for a flush before.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub enum SignalAction {
    /// Unmount; the name of the signal.
    Stop(&'static str),
    /// Upload all staged blocks before the mount ends.
    Flush,
}

pub struct Signals {
    stop: [(&'static str, Signal); 3],
    flush: Signal,
}

impl Signals {
    /// Installs the handlers. From now on none of these signals ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        let stop = [
            ("SIGTERM", signal(SignalKind::terminate())?),
            ("SIGINT", signal(SignalKind::interrupt())?),
            ("SIGHUP", signal(SignalKind::hangup())?),
        ];
        Ok(Self { stop, flush: signal(SignalKind::user_defined1())? })
    }

    /// Waits for a signal to stop and returns its name.
    pub async fn next_stop(&mut self) -> &'static str {
        let [term, int, hup] = &mut self.stop;
        tokio::select! {
            _ = term.1.recv() => term.0,
            _ = int.1.recv() => int.0,
            _ = hup.1.recv() => hup.0,
        }
    }

    /// Waits for any signal, including SIGUSR1, which `umount --flush` sends.
    pub async fn next_action(&mut self) -> SignalAction {
        let [term, int, hup] = &mut self.stop;
        // The signal to flush is sent right before the unmount it is for, so it is checked first.
        tokio::select! {
            biased;
            _ = self.flush.recv() => SignalAction::Flush,
            _ = term.1.recv() => SignalAction::Stop(term.0),
            _ = int.1.recv() => SignalAction::Stop(int.0),
            _ = hup.1.recv() => SignalAction::Stop(hup.0),
        }
    }
}
