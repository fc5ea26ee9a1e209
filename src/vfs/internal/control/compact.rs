//! Compacting a tree by request.

use tracing::{debug, info, warn};

use super::answer::Answer;
use crate::meta::client::Progress;
use crate::meta::{Caller, Ino};
use crate::vfs::internal::Work;

impl Work {
    pub async fn compact(&self, caller: &Caller, ino: Ino, threads: u16, answer: Answer) {
        let progress = Progress::default();
        let work = self.meta.compact_tree(caller, ino, threads.into(), &progress);
        let shown = |progress: &Progress| (progress.total(), progress.done());
        let outcome = answer.watch(&progress, shown, work).await;
        match &outcome {
            Ok(()) => info!(ino = ino.0, chunks = progress.done(), "compacted a tree"),
            Err(error) if error.is_fault() => warn!(ino = ino.0, %error, "cannot compact a tree"),
            Err(error) => debug!(ino = ino.0, %error, "did not compact a tree"),
        }
        answer.end(outcome);
    }
}
