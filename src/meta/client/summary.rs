//! Summaries: what a subtree adds up to, by dir stats or entry by entry, and dir stats that are
//! checked against their entries.

use std::collections::HashSet;

use super::walk::{AT_ONCE, Visit, work_off};
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::attr::align4k;
use crate::meta::record::{DirStat, FileKind};
use crate::sync::Mutex;

/// What a subtree adds up to, its top included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// All that are not directories.
    pub files: u64,
    pub dirs: u64,
    /// Bytes in regular files.
    pub length: u64,
    /// Bytes as usage counts them.
    pub size: u64,
}

/// A directory whose stat does not say what its entries add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatCheck {
    pub dir: Ino,
    /// None if the record is missing or makes no sense.
    pub stored: Option<DirStat>,
    pub counted: DirStat,
}

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryOf {
    /// Otherwise what is in sub-directories is left out.
    pub recursive: bool,
    /// Every file is looked at; otherwise dir stats are believed.
    pub strict: bool,
}

impl SummaryOf {
    pub const TREE: Self = Self { recursive: true, strict: false };
}

impl Summary {
    pub(super) fn add(&mut self, kind: FileKind, length: u64) {
        if kind == FileKind::Dir {
            self.dirs += 1;
        } else {
            self.files += 1;
        }
        let length = if kind == FileKind::File { length } else { 0 };
        self.length = self.length.saturating_add(length);
        self.size = self.size.saturating_add(align4k(length).cast_unsigned());
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.dirs += other.dirs;
        // A store may say that files are as long as numbers go.
        self.length = self.length.saturating_add(other.length);
        self.size = self.size.saturating_add(other.size);
    }
}

impl Progress {
    pub(super) fn summed(&self, part: Summary) {
        self.did(part.files);
        self.found(part.dirs);
        self.saw(part.size);
    }
}

impl Meta {
    /// Adds up a subtree. Not `strict`, dir stats are believed; otherwise every file is looked at.
    pub async fn summary(&self, ino: Ino, strict: bool) -> Result<Summary> {
        let of = SummaryOf { recursive: true, strict };
        self.summary_as(&Caller::root(), ino, of, &Progress::default()).await
    }

    /// As [`Meta::summary`], for a caller who must be allowed to list every directory of it; files,
    /// directories (as the total) and their bytes are counted as they are found.
    pub async fn summary_as(
        &self,
        caller: &Caller,
        ino: Ino,
        of: SummaryOf,
        progress: &Progress,
    ) -> Result<Summary> {
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let mut top = Summary::default();
        top.add(attr.kind, attr.length);
        progress.summed(top);
        if attr.is_dir() {
            let below = self.sum_below(caller, (ino, Visit::top(ino)), of, progress).await?;
            top.merge(below);
        }
        Ok(top)
    }

    /// What is below a directory of a tree, itself not included.
    pub(super) async fn sum_below(
        &self,
        caller: &Caller,
        (top, first): (Ino, Visit),
        of: SummaryOf,
        progress: &Progress,
    ) -> Result<Summary> {
        let sum = Mutex::new(Summary::default());
        let by_stats = !of.strict && self.facts.setting().dir_stats;
        let work = async |visit: Visit, limit| {
            let dir = visit.dir;
            let mut part = Part::default();
            if !visit.is_begun() {
                let Some(attr) = self.enter(caller, top, &visit).await? else {
                    return Ok(Vec::new());
                };
                if by_stats {
                    part = Part::of_stat(self.dir_stat_of(&visit).await?, attr.nlink);
                    // Two links are the name of the directory and its own dot: nothing hangs below.
                    if attr.nlink <= 2 {
                        part.add_to(&sum, progress);
                        return Ok(Vec::new());
                    }
                }
            }
            let mut next = Vec::new();
            let dirs = if by_stats {
                let entries = visit.entries(self, limit, &mut next).await?;
                let dirs = entries.iter().filter(|entry| entry.kind == FileKind::Dir);
                let dirs: HashSet<Ino> = dirs.map(|entry| entry.ino).collect();
                part.dirs_among_files = dirs.len() as u64;
                dirs.into_iter().collect()
            } else {
                let entries = visit.nodes(self, limit, &mut next).await?;
                for entry in &entries {
                    part.sum.add(entry.kind, entry.attr.as_ref().map_or(0, |attr| attr.length));
                }
                self.dirs_among(top, dir, &entries)
            };
            part.add_to(&sum, progress);
            if of.recursive {
                next.extend(dirs.into_iter().map(|below| Visit::below(below, dir)));
            }
            Ok(next)
        };
        work_off(vec![first], AT_ONCE, progress, work).await?;
        Ok(sum.into_inner())
    }

    /// The stat of a directory; none if it went since it was listed.
    async fn dir_stat_of(&self, visit: &Visit) -> Result<DirStat> {
        match self.dir_stat(visit.dir).await {
            Err(Error::NotFound) if !visit.is_top() => Ok(DirStat::default()),
            other => other,
        }
    }

    /// Compares the dir stats of a subtree with what the entries add up to; answers those that are
    /// wrong, and corrects them if asked to.
    pub async fn check_dir_stats(&self, top: Ino, repair: bool) -> Result<Vec<StatCheck>> {
        if !self.facts.setting().dir_stats {
            return Err(Error::bad_input("the volume keeps no dir stats"));
        }
        self.flush_dir_stats().await?;
        let wrong = Mutex::new(Vec::new());
        let caller = Caller::root();
        let work = async |visit: Visit, limit| {
            let dir = visit.dir;
            if !visit.is_begun() {
                if self.enter(&caller, top, &visit).await?.is_none() {
                    return Ok(Vec::new());
                }
                match self.check_dir_stat(dir, repair).await {
                    Ok(None) => {}
                    Ok(Some(check)) => {
                        wrong.lock().push(check);
                    }
                    Err(Error::NotFound) if dir != top => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                }
            }
            let mut next = Vec::new();
            let entries = visit.entries(self, limit, &mut next).await?;
            let dirs = entries.iter().filter(|entry| entry.kind == FileKind::Dir);
            let dirs: HashSet<Ino> = dirs.map(|entry| entry.ino).collect();
            next.extend(dirs.into_iter().map(|below| Visit::below(below, dir)));
            Ok(next)
        };
        work_off(vec![Visit::top(top)], AT_ONCE, &Progress::default(), work).await?;
        Ok(wrong.into_inner())
    }

    async fn check_dir_stat(&self, dir: Ino, repair: bool) -> Result<Option<StatCheck>> {
        let mut stored = self.stored_dir_stat(dir).await?;
        if let Some(stat) = &mut stored {
            *stat += self.dir_stats.unsent(dir);
        }
        let counted = self.count_dir(dir).await?;
        if stored == Some(counted) {
            return Ok(None);
        }
        if repair {
            self.recount_dir(dir).await?;
        }
        Ok(Some(StatCheck { dir, stored, counted }))
    }
}

/// What one step adds.
#[derive(Default)]
struct Part {
    sum: Summary,
    /// Directories that a stat has counted as files, found.
    dirs_among_files: u64,
    /// As many as there should be.
    links: u64,
}

impl Part {
    fn of_stat(stat: DirStat, nlink: u32) -> Self {
        let unsigned = |n: i64| n.max(0).cast_unsigned();
        let sum = Summary {
            files: unsigned(stat.inodes),
            dirs: 0,
            length: unsigned(stat.length),
            size: unsigned(stat.space),
        };
        Self { sum, dirs_among_files: 0, links: u64::from(nlink.saturating_sub(2)) }
    }

    fn add_to(self, sum: &Mutex<Summary>, progress: &Progress) {
        let files = self.sum.files.saturating_sub(self.links);
        progress.summed(Summary { files, ..self.sum });
        progress.found(self.dirs_among_files);
        let mut sum = sum.lock();
        sum.merge(self.sum);
        sum.files = sum.files.saturating_sub(self.dirs_among_files);
        sum.dirs += self.dirs_among_files;
    }
}
