//! Removing whole trees.
//!
//! What is under way lies in a list of directories, each of which knows the one above: nothing nests,
//! however deep the tree is. A directory is listed page by page; its names that are no directories go
//! by the hundred, those that are come first, and it goes itself when nothing is left in it.

mod branches;
mod page;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tracing::warn;

use super::walk;
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::engine::Cursor;
use crate::meta::{Ino, Name};
use branches::{Branch, Branches, Next};

/// Directories emptied at once, unless told otherwise.
const AT_ONCE: usize = 50;

/// How a tree is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removal {
    /// For good, past the trash.
    pub skip_trash: bool,
    /// Directories emptied at once; 0: as many as usual.
    pub at_once: usize,
    /// What cannot be removed does not keep the rest from going; the first failure is told at the end.
    pub keeps_going: bool,
}

/// One removal under way.
struct Remover<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    how: Removal,
    /// Never entered from below.
    top: Ino,
    progress: &'a Progress,
}

impl Meta {
    /// Removes `dir/name` and everything below it. Answers how many entries went.
    pub async fn remove_tree(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<u64> {
        let progress = Progress::default();
        let how = Removal { skip_trash, ..Removal::default() };
        self.remove_tree_as(caller, (dir, name), how, &progress).await?;
        Ok(progress.done())
    }

    /// As [`Meta::remove_tree`]; entries are counted as they go. Of the trash, only what lies in it is
    /// removed.
    pub async fn remove_tree_as(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &Name),
        how: Removal,
        progress: &Progress,
    ) -> Result<()> {
        let (ino, attr) = self.lookup(caller, dir, name).await?;
        if ino.is_trash() && !caller.is_root() {
            return Err(Error::NotPermitted);
        }
        if !attr.is_dir() {
            self.unlink_with(caller, dir, name, how.skip_trash).await?;
            progress.did(1);
            return Ok(());
        }
        self.refuse_writes()?;
        let place = (!ino.is_trash()).then(|| (dir, name.clone()));
        Remover { meta: self, caller, how, top: ino, progress }.run(place).await
    }

    /// Removes everything below a directory, whatever of it cannot be removed. Answers how many entries
    /// went, and the first failure.
    pub(super) async fn empty(&self, caller: &Caller, dir: Ino) -> (u64, Result<()>) {
        let progress = Progress::default();
        let how = Removal { skip_trash: true, keeps_going: true, ..Removal::default() };
        let remover = Remover { meta: self, caller, how, top: dir, progress: &progress };
        let outcome = remover.run(None).await;
        (progress.done(), outcome)
    }
}

impl Remover<'_> {
    /// Removes the tree; without a place, what is below its top.
    async fn run(&self, place: Option<(Ino, Name)>) -> Result<()> {
        let at_once = if self.how.at_once == 0 { AT_ONCE } else { self.how.at_once };
        let mut branches = Branches::new(Branch::new(None, place, self.top));
        let mut running = FuturesUnordered::new();
        let (mut stop, mut failure) = (Ok(()), None);
        loop {
            stop = stop.and_then(|()| self.progress.check());
            while stop.is_ok()
                && running.len() < at_once.clamp(1, walk::MOST_AT_ONCE)
                && let Some((id, next)) = branches.next()
            {
                running.push(self.step(id, next, branches.page()));
            }
            let Some((id, outcome)) = running.next().await else { break };
            let outcome = match outcome {
                Ok(step) => branches.took(id, step),
                Err(error) => Err(error),
            };
            let Err(error) = outcome else { continue };
            let goes_on = self.how.keeps_going && page::is_of_one(&error);
            if goes_on && failure.is_none() {
                warn!(dir = self.top.0, %error, "something of a tree cannot be removed");
            }
            if !goes_on {
                stop = stop.and_then(|()| Err(error.clone()));
            }
            failure.get_or_insert(error);
            branches.stuck(id);
        }
        stop.and_then(|()| failure.map_or(Ok(()), Err))
    }

    /// One step of a branch: a page of it, or the directory itself.
    async fn step(&self, id: usize, next: Next, limit: usize) -> (usize, Result<branches::Step>) {
        let outcome = match next {
            Next::List { dir, pages } => {
                let pages = pages.map_or_else(|| self.meta.pages(dir, Cursor::Start), |it| *it);
                self.page(dir, pages, limit).await
            }
            Next::Drop { place: (dir, name), is_top } => {
                let skip_trash = self.how.skip_trash;
                match self.meta.rmdir_with(self.caller, dir, &name, skip_trash).await {
                    Ok(()) => {
                        self.progress.did(1);
                        Ok(branches::Step::Dropped)
                    }
                    // Someone else removed it.
                    Err(Error::NotFound) if !is_top => Ok(branches::Step::Dropped),
                    // Someone put something in meanwhile.
                    Err(Error::NotEmpty) => Ok(branches::Step::NotEmpty),
                    Err(error) => Err(error),
                }
            }
        };
        (id, outcome)
    }
}
