//! Signals that ask for a clean end, and one that asks for more of it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub enum Asked {
    End(&'static str),
    Flush,
}

pub struct Signals {
    ends: [(&'static str, Signal); 3],
    flush: Signal,
}

impl Signals {
    /// From now on none of them ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        let ends = [
            ("SIGTERM", signal(SignalKind::terminate())?),
            ("SIGINT", signal(SignalKind::interrupt())?),
            ("SIGHUP", signal(SignalKind::hangup())?),
        ];
        Ok(Self { ends, flush: signal(SignalKind::user_defined1())? })
    }

    /// The next that asks for an end.
    pub async fn next(&mut self) -> &'static str {
        let [term, int, hup] = &mut self.ends;
        tokio::select! {
            _ = term.1.recv() => term.0,
            _ = int.1.recv() => int.0,
            _ = hup.1.recv() => hup.0,
        }
    }

    /// The next that asks for an end, or for everything to be uploaded before it: `umount --flush`
    /// sends that one.
    pub async fn next_of_all(&mut self) -> Asked {
        let [term, int, hup] = &mut self.ends;
        // The signal to flush comes right before the end that it is about.
        tokio::select! {
            biased;
            _ = self.flush.recv() => Asked::Flush,
            _ = term.1.recv() => Asked::End(term.0),
            _ = int.1.recv() => Asked::End(int.0),
            _ = hup.1.recv() => Asked::End(hup.0),
        }
    }
}
