//! Writes the reply to a request: progress frames, then the end.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::handle_buffer::HandleBuffer;
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::record::go_json;
use crate::sync::Mutex;
use crate::vfs::control_protocol::{Frame, ReplyEnd, encode_text};

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(300);

/// Writes the reply to one request.
pub struct ReplyWriter {
    buffer: Arc<Mutex<HandleBuffer>>,
    cancel: CancellationToken,
}

impl ReplyWriter {
    pub fn new(buffer: Arc<Mutex<HandleBuffer>>, cancel: CancellationToken) -> Self {
        Self { buffer, cancel }
    }

    /// Runs work to its end and reports its progress. If the request is cancelled, the work is
    /// cancelled through its progress.
    pub async fn watch<T>(
        &self,
        progress: &Progress,
        shown: fn(&Progress) -> (u64, u64),
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        let mut ticks = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
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
                _ = ticks.tick() => self.push_progress(shown(progress)),
            }
        };
        let last = shown(progress);
        if last != (0, 0) {
            self.push_progress(last);
        }
        output
    }

    /// Ends the reply with the outcome.
    pub fn end(self, outcome: Result<()>) {
        let end = match outcome {
            Ok(()) => ReplyEnd::Done,
            Err(error) => ReplyEnd::Failed(error.errno()),
        };
        self.push_reply(&Frame::End(end).encode());
    }

    /// Ends the reply with data, all of it at once: a client that has its start reads on to the
    /// end.
    pub fn end_with(self, data: &impl Serialize) {
        let json = match go_json::compact(data) {
            Ok(json) => json,
            Err(error) => {
                error!(%error, "cannot encode a reply of .control");
                return self.end(Err(Error::damaged("reply", error)));
            }
        };
        self.push_reply(&Frame::End(ReplyEnd::Data(json)).encode());
    }

    /// Ends the reply with a text, in the legacy form.
    pub fn end_with_text(self, text: &str) {
        self.push_reply(&encode_text(text));
    }

    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    fn push_progress(&self, (first, second): (u64, u64)) {
        self.push_reply(&Frame::Progress(first, second).encode());
    }

    fn push_reply(&self, bytes: &[u8]) {
        self.buffer.lock().push_reply(bytes);
    }
}

/// Returns what went wrong, without internal details.
pub fn reason(error: &Error) -> String {
    if error.is_fault() { "input/output error".to_owned() } else { error.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chunk::Budget;

    fn reply() -> (ReplyWriter, Arc<Mutex<HandleBuffer>>) {
        let buffer = Arc::new(Mutex::new(HandleBuffer::new(Budget::new(1 << 20))));
        (ReplyWriter::new(Arc::clone(&buffer), CancellationToken::new()), buffer)
    }

    fn replied(buffer: &Mutex<HandleBuffer>) -> Vec<u8> {
        buffer.lock().read(0, 1000).unwrap().to_vec()
    }

    fn frame(first: u8, second: u8) -> Vec<u8> {
        let mut frame = vec![0xFE];
        frame.extend([0, 0, 0, 0, 0, 0, 0, first]);
        frame.extend([0, 0, 0, 0, 0, 0, 0, second]);
        frame
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_reported_while_work_runs_and_at_its_end() {
        let (reply, buffer) = reply();
        let progress = Progress::default();
        let work = async {
            tokio::time::sleep(Duration::from_millis(350)).await;
            progress.add_done(2);
            progress.add_bytes(5);
            tokio::time::sleep(Duration::from_millis(300)).await;
            progress.add_done(1);
        };
        reply.watch(&progress, |progress| (progress.done(), progress.bytes()), work).await;
        reply.end(Err(Error::NotEmpty));
        let expected = [frame(0, 0), frame(2, 5), frame(3, 5), vec![39]].concat();
        assert_eq!(replied(&buffer), expected);
    }

    #[tokio::test]
    async fn quick_work_without_counts_has_no_progress() {
        let (reply, buffer) = reply();
        let progress = Progress::default();
        reply.watch(&progress, |progress| (progress.done(), 0), async {}).await;
        reply.end(Ok(()));
        assert_eq!(replied(&buffer), [0]);
    }

    #[test]
    fn data_is_preceded_by_its_length() {
        let (reply, buffer) = reply();
        reply.end_with(&json!({"a": "<"}));
        assert_eq!(replied(&buffer), b"\xff\0\0\0\x0e{\"a\":\"\\u003c\"}");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_work_is_stopped_and_still_ends() {
        let (reply, _) = reply();
        let progress = Progress::default();
        reply.cancelled().cancel();
        let work = async {
            while progress.check().is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            "ended"
        };
        assert_eq!(reply.watch(&progress, |_| (0, 0), work).await, "ended");
    }
}
