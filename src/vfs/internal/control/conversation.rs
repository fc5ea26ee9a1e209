//! A conversation: one handle of `.control`, what is asked through it, and its end.

use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::answer::{Answer, errno_byte};
use super::request::Ask;
use super::transcript::{Heard, Transcript};
use crate::chunk::Reserved;
use crate::error::{Error, Result};
use crate::meta::Caller;
use crate::sync::Mutex;
use crate::vfs::internal::Work;

pub struct Conversation {
    work: Arc<Work>,
    caller: Caller,
    transcript: Arc<Mutex<Transcript>>,
    /// Ends what was asked for since the last flush.
    cancel: Mutex<CancellationToken>,
    _seat: OwnedSemaphorePermit,
}

impl Conversation {
    /// [`Error::TooManyOpen`] if there are too many in this mount.
    pub fn new(work: Arc<Work>, caller: Caller) -> Result<Self> {
        let seat = Arc::clone(&work.conversations).try_acquire_owned();
        let seat = seat.map_err(|_| Error::TooManyOpen)?;
        // Names and directories that a request speaks of have not been through the kernel.
        let caller = Caller { check: true, ..caller };
        let cancel = Mutex::new(work.stop.child_token());
        let transcript = Arc::new(Mutex::new(Transcript::new(Arc::clone(&work.memory))));
        Ok(Self { work, caller, transcript, cancel, _seat: seat })
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut transcript = self.transcript.lock();
        match transcript.hear(bytes)? {
            Heard::Part => {}
            Heard::Broken => transcript.say(&[errno_byte(Errno::EIO)]),
            Heard::Whole(request) => {
                let room = transcript.part_with(&request);
                match Ask::parse(request.op, request.body) {
                    Ok(ask) => self.answer(ask, room),
                    Err(error) => {
                        warn!(op = request.op, "a request to .control is not understood");
                        transcript.say(&[errno_byte(error.errno())]);
                    }
                }
            }
        }
        Ok(())
    }

    pub fn read(&self, off: u64, len: usize) -> Result<Bytes> {
        self.transcript.lock().read(off, len)
    }

    /// Gives up what is under way. What is asked for later is done.
    pub fn cancel(&self) {
        let next = self.work.stop.child_token();
        std::mem::replace(&mut *self.cancel.lock(), next).cancel();
    }

    /// What is asked for lies in `room`, also after the handle was closed.
    fn answer(&self, ask: Ask, room: Option<Reserved>) {
        let answer = Answer::new(Arc::clone(&self.transcript), self.cancel.lock().clone());
        let (work, caller) = (Arc::clone(&self.work), self.caller.clone());
        let task = async move {
            let _room = room;
            // One after the other, as far as there are more than may be under way.
            let turn = tokio::select! {
                turn = Arc::clone(&work.turns).acquire_owned() => turn,
                () = answer.cancelled().cancelled() => return answer.end(Err(Error::Interrupted)),
            };
            let _turn = turn;
            let ask = match work.within_reach(&caller, ask).await {
                Ok(ask) => ask,
                Err(error) => return answer.end(Err(error)),
            };
            match ask {
                Ask::Remove(ask) => work.remove(&caller, ask, answer).await,
                Ask::LegacyInfo(ask) => work.legacy_info(&caller, ask, answer).await,
                Ask::Fill(ask) => work.fill(caller, ask, answer).await,
                Ask::Info(ask) => work.info(&caller, ask, answer).await,
                Ask::Clone(ask) => work.clone_tree(&caller, ask, answer).await,
                Ask::Summary(ask) => work.summary(&caller, ask, answer).await,
                Ask::Compact { ino, threads } => work.compact(&caller, ino, threads, answer).await,
            }
        };
        self.work.tasks.spawn_on(task, &self.work.runtime);
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.cancel.lock().cancel();
    }
}
