//! Cloning a tree by request.

use tracing::{debug, info, warn};

use super::answer::Answer;
use super::request::Clone;
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::{Caller, CloneMode, EntryRef, Name};
use crate::vfs::internal::Work;

impl Work {
    pub async fn clone_tree(&self, caller: &Caller, ask: Clone, answer: Answer) {
        let progress = Progress::default();
        let work = self.make_clone(caller, &ask, &progress);
        let shown = |progress: &Progress| (progress.done(), progress.total());
        let outcome = answer.watch(&progress, shown, work).await;
        let (src, dir, name) = (ask.src.0, ask.dst_dir.0, String::from_utf8_lossy(&ask.name));
        match &outcome {
            Ok(()) => info!(src, dir, %name, uid = caller.uid, "cloned a tree"),
            Err(error) if error.is_fault() => warn!(src, dir, %name, %error, "cannot clone a tree"),
            Err(error) => debug!(src, dir, %name, uid = caller.uid, %error, "cloned nothing"),
        }
        // The kernel may remember that there was no such name.
        self.notices.entry_gone(ask.dst_dir, &ask.name);
        self.notices.attr_changed(ask.dst_dir);
        self.notices.heard().await;
        answer.end(outcome);
    }

    async fn make_clone(&self, caller: &Caller, ask: &Clone, progress: &Progress) -> Result<()> {
        if ask.src_dir.is_trash() {
            return Err(Error::NotPermitted);
        }
        if ask.name.is_empty() {
            return Err(Error::NotFound);
        }
        let name = Name::new(&ask.name)?;
        // What a clone shares with its source is what is stored.
        self.content.flush(ask.src).await?;
        let mode = CloneMode { preserve: ask.preserve, umask: ask.umask };
        let (to, threads) = (EntryRef::new(ask.dst_dir, &name), ask.threads.into());
        self.meta.clone_tree(caller, ask.src, to, mode, threads, progress).await.map(drop)
    }
}
