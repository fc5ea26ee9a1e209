//! Walking the tree for those who count: page by page, many directories at once, outside of plans.

use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::engine::{Cursor, Key, Record};
use crate::meta::record::{Attr, Entry};
use crate::meta::{Ino, Name};

/// Entries listed at a time.
const PAGE: usize = 4096;
/// Directories visited at once: the store is asked by others too.
const AT_ONCE: usize = 16;

/// An entry, and its node's attr if it was asked for and is there.
pub(super) struct Listed {
    pub name: Name,
    pub entry: Entry,
    pub attr: Option<Attr>,
}

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
    /// Some entries of a directory, with the attrs of those that `wants` one.
    pub(super) async fn page(
        &self,
        dir: Ino,
        cursor: &Cursor,
        wants: impl Fn(&Entry) -> bool,
    ) -> Result<(Vec<Listed>, Cursor)> {
        let page = self.engine.list(dir, cursor, PAGE).await?;
        let entries = page.entries.iter().map(|(_, entry)| entry);
        let wanted: Vec<Ino> = entries.filter(|e| wants(e)).map(|entry| entry.ino).collect();
        let mut attrs = self.attrs_now(&wanted).await?.into_iter();
        let listed = page
            .entries
            .into_iter()
            .map(|(name, entry)| {
                let attr = if wants(&entry) { attrs.next().flatten() } else { None };
                Listed { name, entry, attr }
            })
            .collect();
        Ok((listed, page.next))
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
