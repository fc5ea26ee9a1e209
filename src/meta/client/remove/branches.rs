//! The directories of a tree that is being removed, and what is to be done next with each.

use crate::error::{Error, Result};
use crate::meta::client::listing::Pages;
use crate::meta::client::walk;
use crate::meta::{Ino, Name};

/// A directory is listed again this often though nothing in it could be removed.
const VAIN_ROUNDS: u32 = 3;

/// A directory on its way out.
pub struct Branch {
    above: Option<usize>,
    /// Where its name is; none if it is only emptied.
    place: Option<(Ino, Name)>,
    dir: Ino,
    /// Where its listing stands; none before the first page.
    pages: Option<Box<Pages>>,
    is_listed: bool,
    /// Directories in it that are not removed yet.
    below: usize,
    /// Something in it stays.
    is_stuck: bool,
    /// Since it was last found not to be empty.
    has_lost: bool,
    vain: u32,
}

/// What is to be done with a directory.
pub enum Next {
    List { dir: Ino, pages: Option<Box<Pages>> },
    Drop { place: (Ino, Name), is_top: bool },
}

/// What came of it.
pub enum Step {
    Listed {
        pages: Box<Pages>,
        dirs: Vec<(Name, Ino)>,
        /// Names that went.
        count: u64,
        /// What went wrong with others.
        failure: Option<Error>,
    },
    Dropped,
    NotEmpty,
}

pub struct Branches {
    all: Vec<Option<Branch>>,
    free: Vec<usize>,
    /// The last found first, so that what is begun comes to an end.
    ready: Vec<usize>,
}

impl Branch {
    pub fn new(above: Option<usize>, place: Option<(Ino, Name)>, dir: Ino) -> Self {
        Self {
            above,
            place,
            dir,
            pages: None,
            is_listed: false,
            below: 0,
            is_stuck: false,
            has_lost: false,
            vain: 0,
        }
    }
}

impl Branches {
    pub fn new(top: Branch) -> Self {
        Self { all: vec![Some(top)], free: Vec::new(), ready: vec![0] }
    }

    /// Entries that a page may have.
    pub fn page(&self) -> usize {
        walk::page(self.ready.len())
    }

    /// What can be begun now.
    pub fn next(&mut self) -> Option<(usize, Next)> {
        let id = self.ready.pop()?;
        let branch = self.all.get_mut(id)?.as_mut()?;
        let next = if branch.is_listed {
            let place = branch.place.clone()?;
            Next::Drop { place, is_top: branch.above.is_none() }
        } else {
            Next::List { dir: branch.dir, pages: branch.pages.take() }
        };
        Some((id, next))
    }

    /// Takes note of a step.
    pub fn took(&mut self, id: usize, step: Step) -> Result<()> {
        let Some(branch) = self.all.get_mut(id).and_then(Option::as_mut) else { return Ok(()) };
        match step {
            Step::Listed { pages, dirs, count, failure } => {
                branch.has_lost |= count > 0 || !dirs.is_empty();
                branch.is_listed = pages.is_at_end();
                branch.pages = Some(pages);
                branch.below = dirs.len();
                let dir = branch.dir;
                for (name, below) in dirs {
                    self.add(Branch::new(Some(id), Some((dir, name)), below));
                }
                if self.all.len() > walk::MOST_WAITING {
                    return Err(walk::too_large());
                }
                if let Some(error) = failure {
                    return Err(error);
                }
                self.go_on(id);
            }
            Step::Dropped => self.finish(id),
            Step::NotEmpty => {
                branch.vain = if branch.has_lost { 0 } else { branch.vain + 1 };
                if branch.vain >= VAIN_ROUNDS {
                    return Err(Error::NotEmpty);
                }
                (branch.has_lost, branch.is_listed, branch.pages) = (false, false, None);
                self.ready.push(id);
            }
        }
        Ok(())
    }

    /// Takes note that something of a directory stays, and so does the directory.
    pub fn stuck(&mut self, id: usize) {
        let Some(branch) = self.all.get_mut(id).and_then(Option::as_mut) else { return };
        branch.is_stuck = true;
        // Without a place to go on from, the rest of it cannot be found.
        branch.is_listed |= branch.pages.is_none();
        self.go_on(id);
    }

    fn go_on(&mut self, mut id: usize) {
        while let Some(branch) = self.all.get(id).and_then(Option::as_ref) {
            if branch.below > 0 {
                return;
            }
            let stays = branch.is_stuck || branch.place.is_none();
            if !branch.is_listed || !stays {
                return self.ready.push(id);
            }
            match self.leave(id) {
                Some(above) => id = above,
                None => return,
            }
        }
    }

    fn finish(&mut self, id: usize) {
        if let Some(above) = self.leave(id) {
            self.go_on(above);
        }
    }

    /// Forgets a directory; answers the one above.
    fn leave(&mut self, id: usize) -> Option<usize> {
        let branch = self.all.get_mut(id)?.take()?;
        self.free.push(id);
        let above = self.all.get_mut(branch.above?)?.as_mut()?;
        above.below = above.below.saturating_sub(1);
        above.is_stuck |= branch.is_stuck;
        branch.above
    }

    fn add(&mut self, branch: Branch) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        if let Some(place) = self.all.get_mut(id) {
            *place = Some(branch);
            self.ready.push(id);
        }
    }
}
