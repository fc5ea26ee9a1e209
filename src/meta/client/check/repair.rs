//! Repairing what a check found. Every write is guarded: a record that has changed since it was
//! found wrong is left alone.

use super::tree::{Checker, DirVisit, Place};
use super::{Outcome, Problem};
use crate::error::{Error, Result};
use crate::meta::op::attrs::repair::RepairAttr;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Timestamp};

/// How often a repair is tried while other clients change the directory.
const MAX_ATTEMPTS: usize = 10;

impl Checker<'_> {
    /// Writes a new attr for a directory that has none.
    pub(super) async fn rebuild_attr(&self, visit: &DirVisit) -> Result<()> {
        let outcome = if self.options.repair {
            outcome_of(self.try_rebuild(visit).await)
        } else {
            Outcome::Left
        };
        self.report(visit.ino, visit.own_path(), Problem::MissingAttr, outcome);
        Ok(())
    }

    async fn try_rebuild(&self, visit: &DirVisit) -> Result<()> {
        let totals = self.meta.count_entries(visit.ino).await?;
        let parent = visit.place.as_ref().map_or(Ino::ROOT, |place| place.lister);
        let mode = self.options.dir_mode;
        let mut repaired = Attr::new(FileKind::Dir, mode, 0, 0, parent, Timestamp::now());
        repaired.nlink = totals.links();
        self.meta.run(&RepairAttr { ino: visit.ino, wrong: None, repaired: &repaired }).await?;
        Ok(())
    }

    pub(super) async fn repair_links(&self, ino: Ino) -> Outcome {
        if !self.options.repair {
            return Outcome::Left;
        }
        outcome_of(self.try_repair_links(ino).await)
    }

    async fn try_repair_links(&self, ino: Ino) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let Some((wrong, totals)) = self.meta.recount(ino).await? else { return Ok(()) };
            if wrong.nlink == totals.links() {
                return Ok(());
            }
            let repaired = Attr { nlink: totals.links(), ..wrong.clone() };
            // Whoever adds or removes a sub-directory changes the attr, so the count is right if
            // the attr is still the one from before it.
            let op = RepairAttr { ino, wrong: Some(&wrong), repaired: &repaired };
            if self.meta.run(&op).await? {
                return Ok(());
            }
        }
        Err(Error::Contended("repair the link count"))
    }

    /// Sets the parent to the directory that lists the node, unless the stored parent lists it too.
    pub(super) async fn repair_parent(&self, ino: Ino, wrong: &Attr, place: &Place) -> Outcome {
        match self.is_listed_in(wrong.parent, ino).await {
            Ok(false) => {}
            Ok(true) => return Outcome::NotRepairable,
            Err(error) => return Outcome::Failed(error),
        }
        if !self.options.repair {
            return Outcome::Left;
        }
        let repaired = Attr { parent: place.lister, ..wrong.clone() };
        let op = RepairAttr { ino, wrong: Some(wrong), repaired: &repaired };
        match self.meta.run(&op).await {
            Ok(true) => Outcome::Repaired,
            Ok(false) => Outcome::Failed(Error::Contended("repair the parent")),
            Err(error) => Outcome::Failed(error),
        }
    }

    async fn is_listed_in(&self, dir: Ino, ino: Ino) -> Result<bool> {
        if dir == Ino::NONE {
            return Ok(false);
        }
        let mut listing = self.meta.list(dir, false);
        while let Some(page) = listing.next().await? {
            if page.iter().any(|entry| entry.ino == ino) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn repair_usage(&self, ino: Ino) -> Outcome {
        if !self.options.repair {
            return Outcome::Left;
        }
        outcome_of(self.meta.recount_dir(ino).await.map(drop))
    }
}

fn outcome_of(result: Result<()>) -> Outcome {
    match result {
        // Removed meanwhile.
        Ok(()) | Err(Error::NotFound) => Outcome::Repaired,
        Err(error) => Outcome::Failed(error),
    }
}
