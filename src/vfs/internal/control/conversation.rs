//! A conversation: one handle of `.control`, what is asked through it, and its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use nix::errno::Errno;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::transcript::{Heard, Request, Transcript};
use crate::error::Result;
use crate::meta::Caller;
use crate::vfs::internal::Work;

pub struct Conversation {
    work: Arc<Work>,
    caller: Caller,
    transcript: Arc<Mutex<Transcript>>,
    /// Ends what was asked for since the last flush.
    cancel: Mutex<CancellationToken>,
}

impl Conversation {
    pub fn new(work: Arc<Work>, caller: Caller) -> Self {
        // Names and directories that a request speaks of have not been through the kernel.
        let caller = Caller { check: true, ..caller };
        let cancel = Mutex::new(work.stop.child_token());
        Self { work, caller, transcript: Arc::default(), cancel }
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut transcript = lock(&self.transcript);
        match transcript.hear(bytes)? {
            Heard::Part => {}
            Heard::Broken => transcript.say(&[errno_byte(Errno::EIO)]),
            Heard::Whole(request) => self.answer(&mut transcript, request),
        }
        Ok(())
    }

    pub fn read(&self, off: u64, len: usize) -> Result<Bytes> {
        lock(&self.transcript).read(off, len)
    }

    /// Gives up what is under way. What is asked for later is done.
    pub fn cancel(&self) {
        let next = self.work.stop.child_token();
        std::mem::replace(&mut *lock(&self.cancel), next).cancel();
    }

    fn answer(&self, transcript: &mut Transcript, request: Request) {
        let Request { op, .. } = request;
        warn!(op, uid = self.caller.uid, "an unknown request to .control");
        transcript.say(&[errno_byte(Errno::EINVAL)]);
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        lock(&self.cancel).cancel();
    }
}

/// An errno as an answer has it.
fn errno_byte(errno: Errno) -> u8 {
    // All that this client answers are below 134.
    u8::try_from(errno as i32).unwrap_or(u8::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
