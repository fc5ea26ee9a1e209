//! Walking a tree, outside of plans: a list of work instead of recursion, many works at once.
//!
//! A tree may be as deep as someone likes, and damaged or hostile metadata may not be a tree at all. So
//! nothing here nests, what waits is bounded, and a directory is entered only from the one that it names
//! as its parent: each has but one, so that no way leads in a circle, except through the top, which is
//! never entered twice.

use std::collections::HashSet;
use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::listing::{DirEntry, Pages};
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{Cursor, Key, Record};
use crate::meta::op::access;
use crate::meta::record::{Attr, FileKind};

/// Works done at once, unless told otherwise: the store is asked by others too.
pub const AT_ONCE: usize = 16;
/// More are not done at once, whatever is asked for: each holds a page of a listing.
pub const MOST_AT_ONCE: usize = 256;
/// Entries of a directory that are taken at once.
const PAGE: usize = 4096;
/// Works that may wait; from a part of that on, directories are taken in small pieces.
pub const MOST_WAITING: usize = 1 << 20;
const MANY_WAITING: usize = 1 << 16;
const SMALL_PAGE: usize = 64;

/// Does works and those that each begets, the last found first, until none is left. A work is told how
/// many entries of a directory it may take. After the first failure, or once the job is given up, nothing
/// more is begun; what was begun comes to its end, as a commit must.
pub async fn work_off<T, F>(
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
            && running.len() < at_once.clamp(1, MOST_AT_ONCE)
            && let Some(next) = waiting.pop()
        {
            running.push(work(next, page(waiting.len())));
        }
        match running.next().await {
            Some(Ok(found)) => waiting.extend(found),
            Some(Err(error)) => outcome = outcome.and(Err(error)),
            None => return outcome,
        }
        if waiting.len() > MOST_WAITING {
            outcome = outcome.and_then(|()| Err(too_large()));
        }
    }
}

/// Entries of a directory to be taken at once while so many works wait.
pub fn page(waiting: usize) -> usize {
    if waiting < MANY_WAITING { PAGE } else { SMALL_PAGE }
}

pub fn too_large() -> Error {
    Error::Refused("the tree is too large to be walked through".to_owned())
}

/// A directory of a walk, at its beginning or between two pages.
pub struct Visit {
    pub dir: Ino,
    /// The directory that lists it; none for the top.
    from: Option<Ino>,
    pages: Option<Pages>,
}

impl Visit {
    pub fn top(dir: Ino) -> Self {
        Self { dir, from: None, pages: None }
    }

    pub fn below(dir: Ino, from: Ino) -> Self {
        Self { dir, from: Some(from), pages: None }
    }

    pub fn is_top(&self) -> bool {
        self.from.is_none()
    }

    pub fn is_begun(&self) -> bool {
        self.pages.is_some()
    }

    /// The next entries without attrs, at most about `limit`; what is left to do after them is put
    /// into `more`.
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
    pub async fn nodes(
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
    /// The attr of a directory about to be listed; none if it is gone or must not be entered from where
    /// it was found. Whoever asks must be allowed to list it and to go through it.
    pub async fn enter(&self, caller: &Caller, top: Ino, visit: &Visit) -> Result<Option<Attr>> {
        let attr = match (self.attr_now(visit.dir).await?, visit.from) {
            (None, None) => return Err(Error::NotFound),
            (None, Some(_)) => return Ok(None),
            (Some(attr), None) => attr.into_dir()?,
            (Some(attr), Some(from)) => {
                if !self.lies_in(top, from, visit.dir, Some(&attr)) {
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
        dirs.filter(|entry| self.lies_in(top, dir, entry.ino, entry.attr.as_ref()))
            .filter_map(|entry| seen.insert(entry.ino).then_some(entry.ino))
            .collect()
    }

    /// Whether a directory that `from` lists also says that it lies there.
    pub(super) fn lies_in(&self, top: Ino, from: Ino, dir: Ino, attr: Option<&Attr>) -> bool {
        let lies = dir != top && attr.is_some_and(|attr| attr.is_dir() && attr.parent == from);
        if !lies {
            self.damage.foreign_dir(from, dir);
        }
        lies
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn works_beget_works_and_no_more_run_at_once_than_asked_for() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let progress = Progress::default();
        let work = async |depth: u32, _| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            yield_now().await;
            progress.did(1);
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(if depth == 0 { vec![] } else { vec![depth - 1; 3] })
        };
        work_off(vec![4], 5, &progress, work).await.unwrap();
        assert_eq!(progress.done(), 1 + 3 + 9 + 27 + 81);
        assert_eq!(most.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn a_chain_of_works_nests_nothing() {
        let progress = Progress::default();
        let work = async |left: u32, _| {
            progress.did(1);
            Ok(if left == 0 { vec![] } else { vec![left - 1] })
        };
        work_off(vec![100_000], 5, &progress, work).await.unwrap();
        assert_eq!(progress.done(), 100_001);
    }

    #[tokio::test]
    async fn after_a_failure_what_was_begun_ends_and_nothing_begins() {
        let progress = Progress::default();
        let work = async |number: u32, _| {
            if number == 1 {
                return Err(Error::NotEmpty);
            }
            yield_now().await;
            progress.did(1);
            Ok(vec![7])
        };
        let outcome = work_off((0..6).collect(), 6, &progress, work).await;
        assert!(matches!(outcome, Err(Error::NotEmpty)));
        // All six had begun.
        assert_eq!(progress.done(), 5);
    }

    #[tokio::test]
    async fn what_is_given_up_is_not_begun() {
        let progress = Progress::default();
        progress.give_up();
        let work = async |(), _| {
            progress.did(1);
            Ok(vec![])
        };
        let outcome = work_off(vec![()], 8, &progress, work).await;
        assert!(matches!(outcome, Err(Error::Interrupted)));
        assert_eq!(progress.done(), 0);
    }

    #[tokio::test]
    async fn what_begets_without_end_is_left_off() {
        let progress = Progress::default();
        let work = async |(), page: usize| Ok(vec![(); page]);
        let outcome = work_off(vec![()], 8, &progress, work).await;
        assert!(matches!(outcome, Err(Error::Refused(_))));
    }
}
