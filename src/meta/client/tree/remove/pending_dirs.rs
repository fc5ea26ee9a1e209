//! The directories of a tree that are still to be removed, and the next step for each.

use crate::error::{Error, Result};
use crate::meta::client::api::listing::Pages;
use crate::meta::client::tree::walk;
use crate::meta::{Ino, Name};

/// How often a directory is listed again although nothing in it could be removed.
const MAX_FUTILE_ROUNDS: u32 = 3;

/// A directory to be removed.
pub struct PendingDir {
    parent: Option<usize>,
    /// Its entry; none if the directory is only emptied.
    entry: Option<(Ino, Name)>,
    dir: Ino,
    /// The position of its listing; none before the first page.
    pages: Option<Box<Pages>>,
    is_listed: bool,
    /// Sub-directories that are not removed yet.
    below: usize,
    /// Something in it cannot be removed.
    has_failed: bool,
    /// Whether anything was removed since it was last found not to be empty.
    has_progress: bool,
    futile_rounds: u32,
}

/// The next step for a directory.
pub enum NextStep {
    List { dir: Ino, pages: Option<Box<Pages>> },
    Remove { entry: (Ino, Name), is_top: bool },
}

/// The outcome of a step.
pub enum StepOutcome {
    Listed {
        pages: Box<Pages>,
        dirs: Vec<(Name, Ino)>,
        /// Entries removed.
        count: u64,
        /// The first failure to remove an entry.
        failure: Option<Error>,
    },
    Removed,
    NotEmpty,
}

pub struct PendingDirs {
    all: Vec<Option<PendingDir>>,
    free: Vec<usize>,
    /// The last found is the first taken, so that directories are completed before others are
    /// started.
    ready: Vec<usize>,
}

impl PendingDir {
    pub fn new(parent: Option<usize>, entry: Option<(Ino, Name)>, dir: Ino) -> Self {
        Self {
            parent,
            entry,
            dir,
            pages: None,
            is_listed: false,
            below: 0,
            has_failed: false,
            has_progress: false,
            futile_rounds: 0,
        }
    }
}

impl PendingDirs {
    pub fn new(top: PendingDir) -> Self {
        Self { all: vec![Some(top)], free: Vec::new(), ready: vec![0] }
    }

    /// Entries per page.
    pub fn page_size(&self) -> usize {
        walk::page_size(self.ready.len())
    }

    /// Takes the next step that can be started.
    pub fn next(&mut self) -> Option<(usize, NextStep)> {
        let id = self.ready.pop()?;
        let pending = self.all.get_mut(id)?.as_mut()?;
        let next = if pending.is_listed {
            let entry = pending.entry.clone()?;
            NextStep::Remove { entry, is_top: pending.parent.is_none() }
        } else {
            NextStep::List { dir: pending.dir, pages: pending.pages.take() }
        };
        Some((id, next))
    }

    /// Records the outcome of a step.
    pub fn complete(&mut self, id: usize, step: StepOutcome) -> Result<()> {
        let Some(pending) = self.all.get_mut(id).and_then(Option::as_mut) else { return Ok(()) };
        match step {
            StepOutcome::Listed { pages, dirs, count, failure } => {
                pending.has_progress |= count > 0 || !dirs.is_empty();
                pending.is_listed = pages.is_at_end();
                pending.pages = Some(pages);
                pending.below = dirs.len();
                let dir = pending.dir;
                for (name, below) in dirs {
                    self.add(PendingDir::new(Some(id), Some((dir, name)), below));
                }
                if self.all.len() > walk::MAX_WAITING {
                    return Err(walk::too_large());
                }
                if let Some(error) = failure {
                    return Err(error);
                }
                self.advance(id);
            }
            StepOutcome::Removed => self.finish(id),
            StepOutcome::NotEmpty => {
                pending.futile_rounds =
                    if pending.has_progress { 0 } else { pending.futile_rounds + 1 };
                if pending.futile_rounds >= MAX_FUTILE_ROUNDS {
                    return Err(Error::NotEmpty);
                }
                (pending.has_progress, pending.is_listed, pending.pages) = (false, false, None);
                self.ready.push(id);
            }
        }
        Ok(())
    }

    /// Records that something in a directory cannot be removed, and so neither can the directory.
    pub fn mark_failed(&mut self, id: usize) {
        let Some(pending) = self.all.get_mut(id).and_then(Option::as_mut) else { return };
        pending.has_failed = true;
        // Without a position, the rest of the listing cannot be read.
        pending.is_listed |= pending.pages.is_none();
        self.advance(id);
    }

    fn advance(&mut self, mut id: usize) {
        while let Some(pending) = self.all.get(id).and_then(Option::as_ref) {
            if pending.below > 0 {
                return;
            }
            let is_kept = pending.has_failed || pending.entry.is_none();
            if !pending.is_listed || !is_kept {
                return self.ready.push(id);
            }
            match self.forget(id) {
                Some(parent) => id = parent,
                None => return,
            }
        }
    }

    fn finish(&mut self, id: usize) {
        if let Some(parent) = self.forget(id) {
            self.advance(parent);
        }
    }

    /// Forgets a directory; returns its parent.
    fn forget(&mut self, id: usize) -> Option<usize> {
        let pending = self.all.get_mut(id)?.take()?;
        self.free.push(id);
        let parent = self.all.get_mut(pending.parent?)?.as_mut()?;
        parent.below = parent.below.saturating_sub(1);
        parent.has_failed |= pending.has_failed;
        pending.parent
    }

    fn add(&mut self, pending: PendingDir) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        if let Some(entry) = self.all.get_mut(id) {
            *entry = Some(pending);
            self.ready.push(id);
        }
    }
}
