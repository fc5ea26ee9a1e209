//! The answer to a request, as it is given: progress, then the end.

use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::transcript::Transcript;
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::record::go_json;
use crate::sync::Mutex;

/// How often progress is told.
const TELLING: Duration = Duration::from_millis(300);

const PROGRESS: u8 = 0xFE;
const DATA: u8 = 0xFF;

/// One answer in the making.
pub struct Answer {
    transcript: Arc<Mutex<Transcript>>,
    cancel: CancellationToken,
}

impl Answer {
    pub fn new(transcript: Arc<Mutex<Transcript>>, cancel: CancellationToken) -> Self {
        Self { transcript, cancel }
    }

    /// Does work to its end and tells how far it is. If the answer is not wanted any more, the work is
    /// given up through its progress.
    pub async fn watch<T>(
        &self,
        progress: &Progress,
        shown: fn(&Progress) -> (u64, u64),
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        let mut ticks = interval_at(Instant::now() + TELLING, TELLING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut wanted = true;
        let output = loop {
            tokio::select! {
                biased;
                output = &mut work => break output,
                () = self.cancel.cancelled(), if wanted => {
                    wanted = false;
                    progress.cancel();
                }
                _ = ticks.tick() => self.say_progress(shown(progress)),
            }
        };
        let last = shown(progress);
        if last != (0, 0) {
            self.say_progress(last);
        }
        output
    }

    /// Ends it with how it went.
    pub fn end(self, outcome: Result<()>) {
        let errno = match outcome {
            Ok(()) => 0,
            Err(error) => errno_byte(error.errno()),
        };
        self.say(&[errno]);
    }

    /// Ends it with data, all of it at once: a reader that has its beginning reads on to the end.
    pub fn end_with(self, data: &impl Serialize) {
        let json = match go_json::compact(data) {
            Ok(json) => json,
            Err(error) => {
                error!(%error, "an answer of .control cannot be written");
                return self.end(Err(Error::damaged("answer", error)));
            }
        };
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        self.say(&[&[DATA][..], &length.to_be_bytes(), &json].concat());
    }

    /// Ends it with a text, in the old form.
    pub fn end_with_text(self, text: &str) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.say(&[&length.to_be_bytes()[..], text.as_bytes()].concat());
    }

    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    fn say_progress(&self, (first, second): (u64, u64)) {
        self.say(&[&[PROGRESS][..], &first.to_be_bytes(), &second.to_be_bytes()].concat());
    }

    fn say(&self, bytes: &[u8]) {
        self.transcript.lock().say(bytes);
    }
}

/// What went wrong, for whoever asked: without places.
pub fn reason(error: &Error) -> String {
    if error.is_fault() { "input/output error".to_owned() } else { error.to_string() }
}

/// An errno as an answer has it.
pub fn errno_byte(errno: Errno) -> u8 {
    // Linux has none above 133.
    u8::try_from(errno as i32).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chunk::Budget;

    fn answer() -> (Answer, Arc<Mutex<Transcript>>) {
        let transcript = Arc::new(Mutex::new(Transcript::new(Budget::new(1 << 20))));
        (Answer::new(Arc::clone(&transcript), CancellationToken::new()), transcript)
    }

    fn said(transcript: &Mutex<Transcript>) -> Vec<u8> {
        transcript.lock().read(0, 1000).unwrap().to_vec()
    }

    fn frame(first: u8, second: u8) -> Vec<u8> {
        let mut frame = vec![0xFE];
        frame.extend([0, 0, 0, 0, 0, 0, 0, first]);
        frame.extend([0, 0, 0, 0, 0, 0, 0, second]);
        frame
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_told_while_work_goes_on_and_at_its_end() {
        let (answer, transcript) = answer();
        let progress = Progress::default();
        let work = async {
            tokio::time::sleep(Duration::from_millis(350)).await;
            progress.add_done(2);
            progress.add_bytes(5);
            tokio::time::sleep(Duration::from_millis(300)).await;
            progress.add_done(1);
        };
        answer.watch(&progress, |progress| (progress.done(), progress.bytes()), work).await;
        answer.end(Err(Error::NotEmpty));
        let expected = [frame(0, 0), frame(2, 5), frame(3, 5), vec![39]].concat();
        assert_eq!(said(&transcript), expected);
    }

    #[tokio::test]
    async fn quick_work_that_counts_nothing_has_no_progress() {
        let (answer, transcript) = answer();
        let progress = Progress::default();
        answer.watch(&progress, |progress| (progress.done(), 0), async {}).await;
        answer.end(Ok(()));
        assert_eq!(said(&transcript), [0]);
    }

    #[test]
    fn data_has_its_length_before_it() {
        let (answer, transcript) = answer();
        answer.end_with(&json!({"a": "<"}));
        assert_eq!(said(&transcript), b"\xff\0\0\0\x0e{\"a\":\"\\u003c\"}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_wanted_any_more_is_given_up_and_still_ends() {
        let (answer, _) = answer();
        let progress = Progress::default();
        answer.cancelled().cancel();
        let work = async {
            while progress.check().is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            "ended"
        };
        assert_eq!(answer.watch(&progress, |_| (0, 0), work).await, "ended");
    }
}
