//! Walking a tree: a list of work items instead of recursion, many processed concurrently.
//!
//! A tree may be arbitrarily deep, and damaged or hostile metadata may not be a tree at all. So
//! nothing here recurses, the number of waiting items is bounded, and a directory is entered only
//! from the one that it stores as its parent. Each directory has one parent, so a cycle is only
//! possible through the top, which is never entered twice.

use std::collections::HashSet;
use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::error::{Error, Result};
use crate::meta::client::api::listing::{DirEntry, Pages};
use crate::meta::client::{Meta, Progress};
use crate::meta::engine::{Cursor, Key, Record};
use crate::meta::op::attrs::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino};

/// Work items processed concurrently by default: other clients use the store as well.
pub const AT_ONCE: usize = 16;
/// The most work items processed concurrently: each holds a page of a listing.
pub const MAX_AT_ONCE: usize = 256;
/// Entries of a directory per page.
const PAGE: usize = 4096;
/// Work items that may wait; from [`MANY_WAITING`] on, directories are read in small pages.
pub const MAX_WAITING: usize = 1 << 20;
const MANY_WAITING: usize = 1 << 16;
const SMALL_PAGE: usize = 64;

/// Processes work items and those that they return, the last found first, until none is left. Each
/// item is passed the number of entries that it may read. After the first failure, or once the work
/// is cancelled, no further item is started; started ones are completed, since a commit cannot be
/// cancelled.
pub async fn run_work_list<T, F>(
    first: Vec<T>,
    at_once: usize,
    progress: &Progress,
    work: impl Fn(T, usize) -> F,
) -> Result<()>
where
    F: Future<Output = Result<Vec<T>>>,
{
    let mut waiting = first;
    let mut running = FuturesUnordered::new();
    let mut outcome = Ok(());
    loop {
        outcome = outcome.and_then(|()| progress.check());
        while outcome.is_ok()
            && running.len() < at_once.clamp(1, MAX_AT_ONCE)
            && let Some(next) = waiting.pop()
        {
            running.push(work(next, page_size(waiting.len())));
        }
        match running.next().await {
            Some(Ok(found)) => waiting.extend(found),
            Some(Err(error)) => outcome = outcome.and(Err(error)),
            None => return outcome,
        }
        if waiting.len() > MAX_WAITING {
            outcome = outcome.and_then(|()| Err(too_large()));
        }
    }
}

/// Entries per page while so many work items wait.
pub fn page_size(waiting: usize) -> usize {
    if waiting < MANY_WAITING { PAGE } else { SMALL_PAGE }
}

pub fn too_large() -> Error {
    Error::Refused("the tree is too large to walk".to_owned())
}

/// A directory of a walk, before its first or between two pages.
pub struct Visit {
    pub dir: Ino,
    /// The directory that lists it; none for the top.
    parent: Option<Ino>,
    pages: Option<Pages>,
}

impl Visit {
    pub fn top(dir: Ino) -> Self {
        Self { dir, parent: None, pages: None }
    }

    pub fn below(dir: Ino, parent: Ino) -> Self {
        Self { dir, parent: Some(parent), pages: None }
    }

    pub fn is_top(&self) -> bool {
        self.parent.is_none()
    }

    pub fn is_started(&self) -> bool {
        self.pages.is_some()
    }

    /// Reads the next entries without attrs, at most about `limit`; pushes the rest of the
    /// directory to `more`.
    pub async fn entries(
        mut self,
        meta: &Meta,
        limit: usize,
        more: &mut Vec<Self>,
    ) -> Result<Vec<DirEntry>> {
        let mut pages = self.pages.take().unwrap_or_else(|| meta.pages(self.dir, Cursor::Start));
        let Some(entries) = pages.next_of(meta, limit).await? else { return Ok(Vec::new()) };
        if !pages.is_at_end() {
            self.pages = Some(pages);
            more.push(self);
        }
        Ok(entries)
    }

    /// As [`Visit::entries`], with attrs.
    pub async fn entries_with_attrs(
        self,
        meta: &Meta,
        limit: usize,
        more: &mut Vec<Self>,
    ) -> Result<Vec<DirEntry>> {
        let entries = self.entries(meta, limit, more).await?;
        meta.with_attrs(entries).await
    }
}

impl Meta {
    /// The attr of a directory about to be listed; none if it is gone or must not be entered from
    /// its lister. The caller must be allowed to list and search it.
    pub async fn enter(&self, caller: &Caller, top: Ino, visit: &Visit) -> Result<Option<Attr>> {
        let attr = match (self.stored_attr(visit.dir).await?, visit.parent) {
            (None, None) => return Err(Error::NotFound),
            (None, Some(_)) => return Ok(None),
            (Some(attr), None) => attr.into_dir()?,
            (Some(attr), Some(from)) => {
                if !self.is_child_of(top, from, visit.dir, Some(&attr)) {
                    return Ok(None);
                }
                attr
            }
        };
        self.permits(caller, &attr, access::READ | access::EXEC).await?;
        Ok(Some(attr))
    }

    /// The directories among the entries of `dir` that may be entered from there, each once.
    pub fn dirs_among(&self, top: Ino, dir: Ino, entries: &[DirEntry]) -> Vec<Ino> {
        let mut seen = HashSet::new();
        let dirs = entries.iter().filter(|entry| entry.kind == FileKind::Dir);
        dirs.filter(|entry| self.is_child_of(top, dir, entry.ino, entry.attr.as_ref()))
            .filter_map(|entry| seen.insert(entry.ino).then_some(entry.ino))
            .collect()
    }

    /// Whether a directory that `from` lists stores it as its parent.
    pub(in crate::meta::client) fn is_child_of(
        &self,
        top: Ino,
        from: Ino,
        dir: Ino,
        attr: Option<&Attr>,
    ) -> bool {
        let is_child = dir != top && attr.is_some_and(|attr| attr.is_dir() && attr.parent == from);
        if !is_child {
            self.damage.misplaced_dir(from, dir);
        }
        is_child
    }

    pub(in crate::meta::client) async fn stored_attr(&self, ino: Ino) -> Result<Option<Attr>> {
        Ok(self.stored_attrs(&[ino]).await?.pop().flatten())
    }

    /// Reads attrs from the store, past all caches.
    pub(in crate::meta::client) async fn stored_attrs(
        &self,
        inodes: &[Ino],
    ) -> Result<Vec<Option<Attr>>> {
        if inodes.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<Key> = inodes.iter().map(|ino| Key::Attr(*ino)).collect();
        let records = self.engine.read(&keys).await?;
        records
            .into_iter()
            .map(|record| match record {
                Record::Attr(attr) => Ok(attr),
                other => Err(Error::damaged("attr", format!("the engine returned {other:?}"))),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn work_items_add_items_and_concurrency_is_limited() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let progress = Progress::default();
        let work = async |depth: u32, _| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            yield_now().await;
            progress.add_done(1);
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(if depth == 0 { vec![] } else { vec![depth - 1; 3] })
        };
        run_work_list(vec![4], 5, &progress, work).await.unwrap();
        assert_eq!(progress.done(), 1 + 3 + 9 + 27 + 81);
        assert_eq!(most.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn a_long_chain_of_work_items_does_not_recurse() {
        let progress = Progress::default();
        let work = async |left: u32, _| {
            progress.add_done(1);
            Ok(if left == 0 { vec![] } else { vec![left - 1] })
        };
        run_work_list(vec![100_000], 5, &progress, work).await.unwrap();
        assert_eq!(progress.done(), 100_001);
    }

    #[tokio::test]
    async fn after_a_failure_started_items_finish_and_no_new_ones_start() {
        let progress = Progress::default();
        let work = async |number: u32, _| {
            if number == 1 {
                return Err(Error::NotEmpty);
            }
            yield_now().await;
            progress.add_done(1);
            Ok(vec![7])
        };
        let outcome = run_work_list((0..6).collect(), 6, &progress, work).await;
        assert!(matches!(outcome, Err(Error::NotEmpty)));
        // All six had been started.
        assert_eq!(progress.done(), 5);
    }

    #[tokio::test]
    async fn cancelled_work_is_not_started() {
        let progress = Progress::default();
        progress.cancel();
        let work = async |(), _| {
            progress.add_done(1);
            Ok(vec![])
        };
        let outcome = run_work_list(vec![()], 8, &progress, work).await;
        assert!(matches!(outcome, Err(Error::Interrupted)));
        assert_eq!(progress.done(), 0);
    }

    #[tokio::test]
    async fn endless_work_is_stopped() {
        let progress = Progress::default();
        let work = async |(), page: usize| Ok(vec![(); page]);
        let outcome = run_work_list(vec![()], 8, &progress, work).await;
        assert!(matches!(outcome, Err(Error::Refused(_))));
    }
}
