//! Walking the tree for those who count: many directories at once, outside of plans.

use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{Key, Record};
use crate::meta::record::{Attr, FileKind};

/// Directories visited at once: the store is asked by others too.
const AT_ONCE: usize = 16;

/// Visits directories and those that each visit answers, until none is left.
pub(super) async fn each_dir<V, F>(roots: Vec<Ino>, visit: V) -> Result<()>
where
    V: Fn(Ino) -> F,
    F: Future<Output = Result<Vec<Ino>>>,
{
    // Last in, first out: what waits stays as small as the tree is narrow.
    let mut waiting = roots;
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(dir) = waiting.pop()
        {
            running.push(visit(dir));
        }
        match running.next().await {
            Some(found) => waiting.extend(found?),
            None => return Ok(()),
        }
    }
}

impl Meta {
    /// The directories in a directory.
    pub(super) async fn dirs_in(&self, dir: Ino) -> Result<Vec<Ino>> {
        let mut dirs = Vec::new();
        let mut listing = self.list(dir, false);
        while let Some(page) = listing.next().await? {
            let found = page.iter().filter(|entry| entry.kind == FileKind::Dir);
            dirs.extend(found.map(|entry| entry.ino));
        }
        Ok(dirs)
    }

    pub(super) async fn attr_now(&self, ino: Ino) -> Result<Option<Attr>> {
        Ok(self.attrs_now(&[ino]).await?.pop().flatten())
    }

    /// The attrs as the store has them now.
    pub(super) async fn attrs_now(&self, inodes: &[Ino]) -> Result<Vec<Option<Attr>>> {
        if inodes.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<Key> = inodes.iter().map(|ino| Key::Attr(*ino)).collect();
        let records = self.engine.read(&keys).await?;
        records
            .into_iter()
            .map(|record| match record {
                Record::Attr(attr) => Ok(attr),
                other => Err(Error::damaged("attr", format!("the engine answered {other:?}"))),
            })
            .collect()
    }
}
