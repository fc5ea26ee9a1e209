//! Walking a tree that may be damaged: directories are entered from the one that lists them, each
//! once, whatever their attrs say.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc::Sender;

use super::dir::Totals;
use super::volume_usage::VolumeCount;
use super::{CheckOptions, CheckedFile, Finding, Outcome, Problem};
use crate::error::{Error, Result};
use crate::meta::client::api::listing::Pages;
use crate::meta::client::api::names::is_trash_name;
use crate::meta::client::tree::walk::run_work_list;
use crate::meta::client::{Meta, Progress};
use crate::meta::engine::{Cursor, Key, Record};
use crate::meta::record::{Attr, Entry, FileKind};
use crate::meta::{Ino, Name};
use crate::sync::Mutex;

/// Directories checked concurrently, as in the Go client.
const AT_ONCE: usize = 20;

/// A check in progress.
pub(super) struct Checker<'a> {
    pub meta: &'a Meta,
    pub options: CheckOptions,
    pub progress: &'a Progress,
    report: &'a (dyn Fn(Finding) + Sync),
    files: Option<&'a Sender<CheckedFile>>,
    /// Directories that were entered, and files with several names.
    entered: Mutex<HashSet<Ino>>,
    /// Counts the usage of the volume, if it is to be corrected.
    pub count: Option<&'a VolumeCount>,
}

/// A directory, before its first or between two pages.
pub(super) struct DirVisit {
    pub ino: Ino,
    pub path: Arc<str>,
    /// Whether its records are checked, and not only counted.
    pub is_checked: bool,
    pub place: Option<Place>,
    pages: Option<Pages>,
    pub totals: Totals,
}

/// Where a directory was found.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub lister: Ino,
    pub name: Name,
}

impl Meta {
    /// Checks the node at `path`. Everything wrong goes to `report`; files go to `files`, for
    /// checks of their data. Counts nodes as done. Returns an error only if the walk could not be
    /// completed.
    pub async fn check_tree(
        &self,
        path: &str,
        options: CheckOptions,
        progress: &Progress,
        report: &(dyn Fn(Finding) + Sync),
        files: Option<&Sender<CheckedFile>>,
    ) -> Result<()> {
        let (ino, kind, place) = self.find_damaged(path).await?;
        let syncs_volume =
            ino == Ino::ROOT && options.repair && options.sync_dir_stat && options.recursive;
        let count = VolumeCount::default();
        let checker = Checker {
            meta: self,
            options,
            progress,
            report,
            files,
            entered: Mutex::default(),
            count: syncs_volume.then_some(&count),
        };
        if kind != FileKind::Dir {
            let attr = self.attrs(&[ino]).await?.pop().flatten();
            return checker.check_file(path, ino, kind, attr.as_ref(), place.as_ref()).await;
        }
        let path = if ino == Ino::ROOT { "" } else { path.trim_end_matches('/') };
        let first = DirVisit::new(ino, path.into(), true, place);
        run_work_list(vec![first], AT_ONCE, progress, |visit, limit| checker.step(visit, limit))
            .await?;
        if syncs_volume {
            let trash = DirVisit::new(Ino::TRASH, "/.trash".into(), false, None);
            run_work_list(vec![trash], AT_ONCE, progress, |visit, limit| {
                checker.step(visit, limit)
            })
            .await?;
            self.set_volume_usage(&count).await?;
        }
        Ok(())
    }

    /// Finds the node of a path by its entries alone, since attrs may be missing.
    async fn find_damaged(&self, path: &str) -> Result<(Ino, FileKind, Option<Place>)> {
        let (mut at, mut kind, mut place) = (Ino::ROOT, FileKind::Dir, None);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if kind != FileKind::Dir {
                return Err(Error::NotDirectory);
            }
            let name = Name::new(part)?;
            let entry = if is_trash_name(at, &name) {
                Some(Entry { kind: FileKind::Dir, ino: Ino::TRASH })
            } else {
                self.stored_entry(at, &name).await?
            };
            let entry = entry.ok_or(Error::NotFound)?;
            place = Some(Place { lister: at, name });
            (at, kind) = (entry.ino, entry.kind);
        }
        Ok((at, kind, place))
    }

    pub(super) async fn stored_entry(&self, dir: Ino, name: &Name) -> Result<Option<Entry>> {
        match self.engine.read(&[Key::Entry(dir, name.clone())]).await?.pop() {
            Some(Record::Entry(entry)) => Ok(entry),
            other => Err(Error::damaged("entry", format!("the engine returned {other:?}"))),
        }
    }
}

impl DirVisit {
    fn new(ino: Ino, path: Arc<str>, is_checked: bool, place: Option<Place>) -> Self {
        Self { ino, path, is_checked, place, pages: None, totals: Totals::default() }
    }

    /// The path of the directory itself.
    pub fn own_path(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

impl Checker<'_> {
    /// Reads a page of a directory; after the last one, checks its own records.
    async fn step(&self, mut visit: DirVisit, limit: usize) -> Result<Vec<DirVisit>> {
        if visit.pages.is_none() {
            if !self.entered.lock().insert(visit.ino) {
                self.report(
                    visit.ino,
                    visit.own_path(),
                    Problem::ListedTwice,
                    Outcome::NotRepairable,
                );
                return Ok(Vec::new());
            }
            visit.pages = Some(self.meta.pages(visit.ino, Cursor::Start));
        }
        let Some(mut pages) = visit.pages.take() else { return Ok(Vec::new()) };
        let (mut found, mut is_last) = (Vec::new(), true);
        match self.meta_page(&mut pages, &mut visit, limit).await {
            Ok(None) => {}
            Ok(Some(below)) => (found, is_last) = (below, pages.is_at_end()),
            Err(error @ (Error::Interrupted | Error::Unreachable { .. })) => return Err(error),
            Err(error) => {
                let problem = Problem::Unreadable(error);
                self.report(visit.ino, visit.own_path(), problem, Outcome::NotRepairable);
                return Ok(Vec::new());
            }
        }
        if !is_last {
            visit.pages = Some(pages);
            found.push(visit);
            return Ok(found);
        }
        if visit.is_checked {
            self.check_dir(&visit).await?;
            self.progress.add_done(1);
        }
        if let Some(count) =
            self.count.filter(|_| visit.ino != Ino::ROOT && visit.ino != Ino::TRASH)
        {
            count.add_dir();
        }
        Ok(found)
    }

    /// Reads the next entries; returns the directories among them.
    async fn meta_page(
        &self,
        pages: &mut Pages,
        visit: &mut DirVisit,
        limit: usize,
    ) -> Result<Option<Vec<DirVisit>>> {
        let Some((entries, odd)) = pages.next_stored(self.meta, limit).await? else {
            return Ok(None);
        };
        if visit.is_checked {
            for entry in odd {
                let path = format!("{}/{}", visit.path, entry.name.escape_ascii());
                let ino = entry.entry.map_or(Ino::NONE, |entry| entry.ino);
                self.report(ino, &path, Problem::InvalidEntry, Outcome::NotRepairable);
            }
        }
        let inos: Vec<Ino> = entries.iter().map(|entry| entry.ino).collect();
        let attrs = self.meta.attrs(&inos).await?;
        let mut dirs = Vec::new();
        for (entry, attr) in entries.into_iter().zip(attrs) {
            visit.totals.add(entry.kind, attr.as_ref());
            let recurses = self.options.recursive || !visit.is_checked;
            if !recurses {
                continue;
            }
            let path = format!("{}/{}", visit.path, entry.name);
            if let Some((count, attr)) = self.count.zip(attr.as_ref().filter(|attr| !attr.is_dir()))
            {
                count.add_file(entry.ino, attr);
            }
            let place = Place { lister: visit.ino, name: entry.name };
            if entry.kind == FileKind::Dir {
                dirs.push(DirVisit::new(entry.ino, path.into(), visit.is_checked, Some(place)));
            } else if visit.is_checked {
                self.check_file(&path, entry.ino, entry.kind, attr.as_ref(), Some(&place)).await?;
            }
        }
        Ok(Some(dirs))
    }

    async fn check_file(
        &self,
        path: &str,
        ino: Ino,
        kind: FileKind,
        attr: Option<&Attr>,
        place: Option<&Place>,
    ) -> Result<()> {
        self.check_place(path, ino, attr, place).await?;
        if kind == FileKind::File {
            self.progress.add_done(1);
            let length = attr.map_or(0, |attr| attr.length);
            let is_linked = attr.is_some_and(|attr| attr.nlink > 1);
            let is_first = !is_linked || self.entered.lock().insert(ino);
            if let Some(files) = self.files.filter(|_| is_first) {
                let file = CheckedFile { ino, length, path: path.to_owned() };
                // The receiver has gone only if it failed.
                files.send(file).await.map_err(|_| Error::Interrupted)?;
            }
        }
        Ok(())
    }

    pub(super) fn report(&self, ino: Ino, path: &str, problem: Problem, outcome: Outcome) {
        (self.report)(Finding { ino, path: path.to_owned(), problem, outcome });
    }
}
