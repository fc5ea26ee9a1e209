//! Changing the group of a whole tree.

use crate::error::{Error, Result};
use crate::meta::client::tree::walk::{AT_ONCE, Visit, run_work_list};
use crate::meta::client::{Meta, Progress};
use crate::meta::record::{Attr, FileKind};
use crate::meta::{AttrSet, Caller, Ino};

/// Mode bits that directories get: full access for the group, and new entries inherit it.
const DIR_MODE_BITS: u16 = 0o2070;
/// Mode bits that all other nodes get.
const FILE_MODE_BITS: u16 = 0o060;
/// Nodes processed one after the other by one work item.
const NODES_PER_ITEM: usize = 16;

/// A work item.
enum Work {
    Dir(Visit),
    Nodes(Vec<(Ino, Attr)>),
}

impl Meta {
    /// Changes the group of a directory and everything below it, and lets the group read and write
    /// it. Does nothing if the directory already has the group and mode; it is changed last, so
    /// that an interrupted walk is repeated. Returns whether anything had to be done.
    pub async fn change_group_recursively(
        &self,
        top: Ino,
        group: u32,
        progress: &Progress,
    ) -> Result<bool> {
        let attr = self.stored_attr(top).await?.ok_or(Error::NotFound)?.into_dir()?;
        if has_group(&attr, group) {
            return Ok(false);
        }
        self.check_writable()?;
        let first = vec![Work::Dir(Visit::top(top))];
        let work = |work, page| self.process_item(work, top, group, page, progress);
        run_work_list(first, AT_ONCE, progress, work).await?;
        self.set_group(top, &attr, group).await?;
        Ok(true)
    }

    async fn process_item(
        &self,
        work: Work,
        top: Ino,
        group: u32,
        limit: usize,
        progress: &Progress,
    ) -> Result<Vec<Work>> {
        let visit = match work {
            Work::Dir(visit) => visit,
            Work::Nodes(nodes) => {
                for (ino, attr) in nodes {
                    progress.check()?;
                    self.set_group(ino, &attr, group).await?;
                    progress.add_done(1);
                }
                return Ok(Vec::new());
            }
        };
        if !visit.is_started() && self.enter(&Caller::root(), top, &visit).await?.is_none() {
            return Ok(Vec::new());
        }
        let (dir, mut rest) = (visit.dir, Vec::new());
        let entries = visit.entries_with_attrs(self, limit, &mut rest).await?;
        let dirs = self.dirs_among(top, dir, &entries);
        let rest = rest.into_iter().chain(dirs.into_iter().map(|ino| Visit::below(ino, dir)));
        let nodes = entries.into_iter().filter_map(|entry| Some((entry.ino, entry.attr?)));
        let nodes: Vec<_> = nodes.filter(|(_, attr)| !has_group(attr, group)).collect();
        let nodes = nodes.chunks(NODES_PER_ITEM).map(|nodes| Work::Nodes(nodes.to_vec()));
        Ok(rest.map(Work::Dir).chain(nodes).collect())
    }

    async fn set_group(&self, ino: Ino, attr: &Attr, group: u32) -> Result<()> {
        // Two changes, since changing the group may clear bits of the mode.
        let owner = AttrSet { gid: Some(group), ..AttrSet::default() };
        let mode =
            AttrSet { mode: Some(attr.mode | required_mode_bits(attr)), ..AttrSet::default() };
        let sets = [(attr.gid != group).then_some(owner), (!has_mode_bits(attr)).then_some(mode)];
        for set in sets.into_iter().flatten() {
            match self.setattr(&Caller::root(), ino, set).await {
                // It was removed meanwhile, or nobody may change it.
                Ok(_) | Err(Error::NotFound | Error::NotPermitted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn has_group(attr: &Attr, group: u32) -> bool {
    attr.gid == group && has_mode_bits(attr)
}

fn has_mode_bits(attr: &Attr) -> bool {
    attr.mode & required_mode_bits(attr) == required_mode_bits(attr)
}

fn required_mode_bits(attr: &Attr) -> u16 {
    match attr.kind {
        FileKind::Dir => DIR_MODE_BITS,
        FileKind::Symlink => 0,
        _ => FILE_MODE_BITS,
    }
}
