//! Waking receivers that wait in read(2), so that they see they are to stop.
//!
//! Nothing but a signal does that without costing every request something: a descriptor that does
//! not block must be polled, which wakes all threads for each request. A signal can come just before
//! the thread waits, so it is sent until the thread is gone.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::pthread::pthread_kill;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};

/// By default it is ignored, so one that goes astray harms nobody.
const SIGNAL: Signal = Signal::SIGURG;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// The receiving threads of a session.
#[derive(Default)]
pub struct Receivers(Vec<JoinHandle<()>>);

impl Receivers {
    pub fn push(&mut self, receiver: JoinHandle<()>) {
        self.0.push(receiver);
    }

    pub fn have_ended(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Wakes the threads until all have ended. They must have been told to stop.
    pub async fn halt(&self) {
        while !self.have_ended() {
            for receiver in self.0.iter().filter(|receiver| !receiver.is_finished()) {
                // One that has ended meanwhile is not joined yet, so it can still be named.
                let _ = pthread_kill(receiver.as_pthread_t(), SIGNAL);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

extern "C" fn nothing(_: std::ffi::c_int) {}

/// Has the signal interrupt what a thread waits for, instead of being ignored.
#[allow(unsafe_code, reason = "there is no safe way to handle a signal without restarting calls")]
pub fn prepare() -> nix::Result<()> {
    // No SA_RESTART: the call must come back.
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, so it cannot do anything that a handler must not.
    unsafe { nix::sys::signal::sigaction(SIGNAL, &action) }.map(drop)
}
