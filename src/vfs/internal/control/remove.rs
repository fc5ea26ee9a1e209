//! Removing a tree by request.

use tracing::{debug, info, warn};

use super::answer::Answer;
use super::request::Remove;
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Removal};
use crate::meta::{Caller, EntryRef, Name};
use crate::vfs::internal::Work;

impl Work {
    pub async fn remove(&self, caller: &Caller, ask: Remove, answer: Answer) {
        let progress = Progress::default();
        let work = self.remove_tree(caller, &ask, &progress);
        let outcome = answer.watch(&progress, |progress| (progress.done(), 0), work).await;
        let (dir, name) = (ask.dir.0, String::from_utf8_lossy(&ask.name));
        match &outcome {
            Ok(()) => {
                info!(dir, %name, uid = caller.uid, count = progress.done(), "removed a tree");
            }
            Err(error) if error.is_fault() => warn!(dir, %name, %error, "cannot remove a tree"),
            Err(error) => debug!(dir, %name, uid = caller.uid, %error, "did not remove a tree"),
        }
        // Also after a failure: what lay below may be gone.
        self.notices.entry_gone(ask.dir, &ask.name);
        self.notices.attr_changed(ask.dir);
        self.notices.heard().await;
        answer.end(outcome);
    }

    async fn remove_tree(&self, caller: &Caller, ask: &Remove, progress: &Progress) -> Result<()> {
        // The trash guards against mistakes; only root may do without it.
        if ask.skip_trash && !caller.is_root() {
            return Err(Error::NotPermitted);
        }
        let name = Name::new(&ask.name)?;
        let at_once = ask.threads.into();
        let how = Removal { skip_trash: ask.skip_trash, at_once, keeps_going: false };
        self.meta.remove_tree_with(caller, EntryRef::new(ask.dir, &name), how, progress).await
    }
}
