//! Removing whole trees.
//!
//! Work in progress is kept as a list of directories that each know their parent, not as recursion,
//! however deep the tree is. A directory is listed page by page; entries that are not directories
//! are removed in batches, sub-directories are removed first, and the directory itself when it is
//! empty.

mod page;
mod pending_dirs;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tracing::warn;

use crate::error::{Error, Result};
use crate::meta::client::tree::walk;
use crate::meta::client::{Meta, Progress};
use crate::meta::engine::Cursor;
use crate::meta::{Caller, EntryRef, Ino, Name};
use pending_dirs::{NextStep, PendingDir, PendingDirs, StepOutcome};

/// Directories emptied concurrently by default.
const AT_ONCE: usize = 50;

/// How a tree is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removal {
    /// Removes permanently instead of moving to the trash.
    pub skip_trash: bool,
    /// Directories emptied concurrently; 0 for the default.
    pub at_once: usize,
    /// Continues after an entry that cannot be removed; the first failure is returned at the end.
    pub keeps_going: bool,
}

/// A removal in progress.
struct Remover<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    how: Removal,
    /// Never entered from below.
    top: Ino,
    progress: &'a Progress,
}

impl Meta {
    /// Removes an entry and everything below it. Returns how many entries were removed.
    pub async fn remove_tree(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<u64> {
        let progress = Progress::default();
        let how = Removal { skip_trash, ..Removal::default() };
        self.remove_tree_with(caller, EntryRef::new(dir, name), how, &progress).await?;
        Ok(progress.done())
    }

    /// As [`Meta::remove_tree`]; counts entries as they are removed. Of the trash itself, only the
    /// content is removed.
    pub async fn remove_tree_with(
        &self,
        caller: &Caller,
        entry: EntryRef<'_>,
        how: Removal,
        progress: &Progress,
    ) -> Result<()> {
        let EntryRef { dir, name } = entry;
        let (ino, attr) = self.lookup(caller, dir, name).await?;
        if ino.is_trash() && !caller.is_root() {
            return Err(Error::NotPermitted);
        }
        if !attr.is_dir() {
            self.unlink_with(caller, dir, name, how.skip_trash).await?;
            progress.add_done(1);
            return Ok(());
        }
        self.check_writable()?;
        let place = (!ino.is_trash()).then(|| (dir, name.clone()));
        Remover { meta: self, caller, how, top: ino, progress }.run(place).await
    }

    /// Removes everything below a directory and continues after failures. Returns how many entries
    /// were removed, and the first failure.
    pub(in crate::meta::client) async fn empty(
        &self,
        caller: &Caller,
        dir: Ino,
    ) -> (u64, Result<()>) {
        let progress = Progress::default();
        let how = Removal { skip_trash: true, keeps_going: true, ..Removal::default() };
        let remover = Remover { meta: self, caller, how, top: dir, progress: &progress };
        let outcome = remover.run(None).await;
        (progress.done(), outcome)
    }
}

impl Remover<'_> {
    /// Removes the tree; without an entry, only what is below its top.
    async fn run(&self, place: Option<(Ino, Name)>) -> Result<()> {
        let at_once = if self.how.at_once == 0 { AT_ONCE } else { self.how.at_once };
        let mut pending_dirs = PendingDirs::new(PendingDir::new(None, place, self.top));
        let mut running = FuturesUnordered::new();
        let (mut stop, mut failure) = (Ok(()), None);
        loop {
            stop = stop.and_then(|()| self.progress.check());
            while stop.is_ok()
                && running.len() < at_once.clamp(1, walk::MAX_AT_ONCE)
                && let Some((id, next)) = pending_dirs.next()
            {
                running.push(self.step(id, next, pending_dirs.page_size()));
            }
            let Some((id, outcome)) = running.next().await else { break };
            let outcome = match outcome {
                Ok(step) => pending_dirs.complete(id, step),
                Err(error) => Err(error),
            };
            let Err(error) = outcome else { continue };
            let continues = self.how.keeps_going && page::concerns_one_entry(&error);
            if continues && failure.is_none() {
                warn!(dir = self.top.0, %error, "cannot remove an entry of the tree");
            }
            if !continues {
                stop = stop.and_then(|()| Err(error.clone()));
            }
            failure.get_or_insert(error);
            pending_dirs.mark_failed(id);
        }
        stop.and_then(|()| failure.map_or(Ok(()), Err))
    }

    /// One step for a directory: a page of it, or the directory itself.
    async fn step(&self, id: usize, next: NextStep, limit: usize) -> (usize, Result<StepOutcome>) {
        let outcome = match next {
            NextStep::List { dir, pages } => {
                let pages = pages.map_or_else(|| self.meta.pages(dir, Cursor::Start), |it| *it);
                self.page(dir, pages, limit).await
            }
            NextStep::Remove { entry: (dir, name), is_top } => {
                let skip_trash = self.how.skip_trash;
                match self.meta.rmdir_with(self.caller, dir, &name, skip_trash).await {
                    Ok(()) => {
                        self.progress.add_done(1);
                        Ok(StepOutcome::Removed)
                    }
                    // Another client removed it.
                    Err(Error::NotFound) if !is_top => Ok(StepOutcome::Removed),
                    // An entry was added meanwhile.
                    Err(Error::NotEmpty) => Ok(StepOutcome::NotEmpty),
                    Err(error) => Err(error),
                }
            }
        };
        (id, outcome)
    }
}
