//! Removing whole trees.

use std::collections::HashSet;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::crew::Crew;
use super::listing::DirEntry;
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::op::unlink_many::UnlinkMany;
use crate::meta::record::FileKind;
use crate::meta::{Ino, Name};

/// Directories emptied at once, unless told otherwise.
const AT_ONCE: usize = 50;

/// How a tree is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removal {
    /// For good, past the trash.
    pub skip_trash: bool,
    /// Directories emptied at once; 0: as many as usual.
    pub at_once: usize,
}

/// One removal under way.
struct Remover<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    skip_trash: bool,
    crew: Crew<'a>,
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
        Remover::new(self, caller, how, progress).remove(dir, name, ino).await
    }

    /// Removes everything below a directory. Answers how many entries went.
    pub(super) async fn empty(&self, caller: &Caller, dir: Ino, skip_trash: bool) -> Result<u64> {
        let progress = Progress::default();
        let how = Removal { skip_trash, ..Removal::default() };
        Remover::new(self, caller, how, &progress).empty(dir).await?;
        Ok(progress.done())
    }
}

impl<'a> Remover<'a> {
    fn new(meta: &'a Meta, caller: &'a Caller, how: Removal, progress: &'a Progress) -> Self {
        let at_once = if how.at_once == 0 { AT_ONCE } else { how.at_once };
        Self { meta, caller, skip_trash: how.skip_trash, crew: Crew::new(at_once, progress) }
    }

    /// A directory and all that is in it.
    async fn remove(&self, dir: Ino, name: &Name, ino: Ino) -> Result<()> {
        loop {
            self.empty(ino).await?;
            if ino.is_trash() {
                return Ok(());
            }
            self.crew.check()?;
            match self.meta.rmdir_with(self.caller, dir, name, self.skip_trash).await {
                Ok(()) => {
                    self.crew.progress().did(1);
                    return Ok(());
                }
                // Someone put something in meanwhile.
                Err(Error::NotEmpty) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything below a directory.
    fn empty(&self, dir: Ino) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut listing = self.meta.list(dir, false);
            while let Some(page) = listing.next().await? {
                let (dirs, others): (Vec<DirEntry>, Vec<DirEntry>) =
                    page.into_iter().partition(|entry| entry.kind == FileKind::Dir);
                self.unlink_all(dir, others).await?;
                self.crew.run(dirs, |entry| self.remove_in(dir, entry).boxed()).await?;
            }
            Ok(())
        }
        .boxed()
    }

    /// A directory that a listing showed; it may be gone by now.
    async fn remove_in(&self, dir: Ino, entry: DirEntry) -> Result<()> {
        match self.remove(dir, &entry.name, entry.ino).await {
            Err(Error::NotFound) => Ok(()),
            other => other,
        }
    }

    async fn unlink_all(&self, dir: Ino, entries: Vec<DirEntry>) -> Result<()> {
        let meta = self.meta;
        let mut left: Vec<(Name, Ino)> = entries.into_iter().map(|e| (e.name, e.ino)).collect();
        while !left.is_empty() {
            self.crew.check()?;
            let names = take_batch(&mut left, meta.engine.traits().batch);
            let hour = meta.hour_for(dir, self.skip_trash).await?;
            let op = UnlinkMany { caller: self.caller, dir, names: &names, hour };
            self.crew.progress().did(meta.run(&op).await?);
            meta.wait_for_collection().await;
        }
        Ok(())
    }
}

/// The next names to remove together: no inode twice, since each removal changes its node.
fn take_batch(left: &mut Vec<(Name, Ino)>, size: usize) -> Vec<(Name, Ino)> {
    let mut inos = HashSet::new();
    let mut batch = Vec::new();
    let mut rest = Vec::new();
    for item in left.drain(..) {
        if batch.len() < size && inos.insert(item.1) {
            batch.push(item);
        } else {
            rest.push(item);
        }
    }
    *left = rest;
    batch
}
