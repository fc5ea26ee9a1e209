//! Giving a whole tree to a group.

use super::walk::{AT_ONCE, Visit, work_off};
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::op::setattr::AttrSet;
use crate::meta::record::{Attr, FileKind};

/// What the group may do in directories: all, and what is made there is the group's.
const IN_DIRS: u16 = 0o2070;
/// What it may do with everything else.
const WITH_FILES: u16 = 0o060;
/// Nodes that one after the other make one work.
const NODES: usize = 16;

/// What is to be given away.
enum Work {
    Dir(Visit),
    Nodes(Vec<(Ino, Attr)>),
}

impl Meta {
    /// Gives a directory and everything in it to a group, which may read and write it then. Nothing is
    /// done if the directory is the group's already; it is the last one that is given, so that a walk that
    /// was broken off is begun again. Answers whether there was something to do.
    pub async fn give_to_group(&self, top: Ino, group: u32, progress: &Progress) -> Result<bool> {
        let attr = self.attr_now(top).await?.ok_or(Error::NotFound)?.into_dir()?;
        if is_given(&attr, group) {
            return Ok(false);
        }
        self.refuse_writes()?;
        let first = vec![Work::Dir(Visit::top(top))];
        let work = |work, page| self.give_some(work, (top, group), page, progress);
        work_off(first, AT_ONCE, progress, work).await?;
        self.give(top, &attr, group).await?;
        Ok(true)
    }

    async fn give_some(
        &self,
        work: Work,
        (top, group): (Ino, u32),
        limit: usize,
        progress: &Progress,
    ) -> Result<Vec<Work>> {
        let visit = match work {
            Work::Dir(visit) => visit,
            Work::Nodes(nodes) => {
                for (ino, attr) in nodes {
                    progress.check()?;
                    self.give(ino, &attr, group).await?;
                    progress.did(1);
                }
                return Ok(Vec::new());
            }
        };
        if !visit.is_begun() && self.enter(&Caller::root(), top, &visit).await?.is_none() {
            return Ok(Vec::new());
        }
        let (dir, mut rest) = (visit.dir, Vec::new());
        let entries = visit.nodes(self, limit, &mut rest).await?;
        let dirs = self.dirs_among(top, dir, &entries);
        let rest = rest.into_iter().chain(dirs.into_iter().map(|ino| Visit::below(ino, dir)));
        let nodes = entries.into_iter().filter_map(|entry| Some((entry.ino, entry.attr?)));
        let nodes: Vec<_> = nodes.filter(|(_, attr)| !is_given(attr, group)).collect();
        let nodes = nodes.chunks(NODES).map(|nodes| Work::Nodes(nodes.to_vec()));
        Ok(rest.map(Work::Dir).chain(nodes).collect())
    }

    async fn give(&self, ino: Ino, attr: &Attr, group: u32) -> Result<()> {
        // One after the other: a change of the group may take bits of the mode away.
        let owner = AttrSet { gid: Some(group), ..AttrSet::default() };
        let mode = AttrSet { mode: Some(attr.mode | wanted(attr)), ..AttrSet::default() };
        let sets = [(attr.gid != group).then_some(owner), (!may_use(attr)).then_some(mode)];
        for set in sets.into_iter().flatten() {
            match self.setattr(&Caller::root(), ino, set).await {
                // It went meanwhile, or must not be changed by anybody.
                Ok(_) | Err(Error::NotFound | Error::NotPermitted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_given(attr: &Attr, group: u32) -> bool {
    attr.gid == group && may_use(attr)
}

fn may_use(attr: &Attr) -> bool {
    attr.mode & wanted(attr) == wanted(attr)
}

fn wanted(attr: &Attr) -> u16 {
    match attr.kind {
        FileKind::Dir => IN_DIRS,
        FileKind::Symlink => 0,
        _ => WITH_FILES,
    }
}
