//! Removing whole trees.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::listing::DirEntry;
use super::{Caller, Meta};
use crate::error::{Error, Result};
use crate::meta::op::unlink_many::UnlinkMany;
use crate::meta::record::FileKind;
use crate::meta::{Ino, Name};

/// Sub-directories of one directory that are emptied at once.
const AT_ONCE: usize = 8;

impl Meta {
    /// Removes `dir/name` and everything below it. Answers how many entries went.
    pub async fn remove_tree(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<u64> {
        let (ino, attr) = self.lookup(caller, dir, name).await?;
        if !attr.is_dir() {
            self.unlink_with(caller, dir, name, skip_trash).await?;
            return Ok(1);
        }
        self.remove_dir(caller, dir, name, ino, skip_trash).await
    }

    async fn remove_dir(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        ino: Ino,
        skip_trash: bool,
    ) -> Result<u64> {
        let mut removed = 0;
        loop {
            removed += self.empty(caller, ino, skip_trash).await?;
            match self.rmdir_with(caller, dir, name, skip_trash).await {
                Ok(()) => return Ok(removed + 1),
                // Someone put something in meanwhile.
                Err(Error::NotEmpty) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes everything below a directory.
    pub(super) fn empty<'a>(
        &'a self,
        caller: &'a Caller,
        dir: Ino,
        skip_trash: bool,
    ) -> BoxFuture<'a, Result<u64>> {
        async move {
            let mut removed = 0;
            let mut listing = self.list(dir, false);
            while let Some(page) = listing.next().await? {
                let (dirs, others): (Vec<DirEntry>, Vec<DirEntry>) =
                    page.into_iter().partition(|entry| entry.kind == FileKind::Dir);
                removed += self.unlink_all(caller, dir, others, skip_trash).await?;
                let emptied = stream::iter(dirs).map(|entry| async move {
                    match self.remove_dir(caller, dir, &entry.name, entry.ino, skip_trash).await {
                        Err(Error::NotFound) => Ok(0),
                        other => other,
                    }
                });
                removed += emptied
                    .buffer_unordered(AT_ONCE)
                    .try_fold(0, |sum, count| async move { Ok(sum + count) })
                    .await?;
            }
            Ok(removed)
        }
        .boxed()
    }

    async fn unlink_all(
        &self,
        caller: &Caller,
        dir: Ino,
        entries: Vec<DirEntry>,
        skip_trash: bool,
    ) -> Result<u64> {
        let mut removed = 0;
        let mut left: Vec<(Name, Ino)> = entries.into_iter().map(|e| (e.name, e.ino)).collect();
        while !left.is_empty() {
            let batch = take_batch(&mut left, self.engine.traits().batch);
            let hour = self.hour_for(dir, skip_trash).await?;
            removed += self.run(&UnlinkMany { caller, dir, names: &batch, hour }).await?;
            self.wait_for_collection().await;
        }
        Ok(removed)
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
