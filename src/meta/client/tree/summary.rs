//! Summaries: totals of a subtree, from dir stats or entry by entry, and checks of dir stats
//! against the entries.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::meta::client::tree::walk::{AT_ONCE, Visit, run_work_list};
use crate::meta::client::{Meta, Progress};
use crate::meta::record::attr::align4k;
use crate::meta::record::{DirStat, FileKind};
use crate::meta::{Caller, Ino};
use crate::sync::Mutex;

/// The totals of a subtree, its top included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Nodes that are not directories.
    pub files: u64,
    pub dirs: u64,
    /// Bytes in regular files.
    pub length: u64,
    /// Bytes as usage counts them: each node rounded up to 4 KiB.
    pub size: u64,
}

/// A directory whose stored dir stat differs from its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatCheck {
    pub dir: Ino,
    /// None if the record is missing or invalid.
    pub stored: Option<DirStat>,
    pub counted: DirStat,
}

/// What a summary includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryOptions {
    /// Whether sub-directories are included.
    pub recursive: bool,
    /// Reads every node instead of relying on dir stats.
    pub strict: bool,
}

impl SummaryOptions {
    pub const TREE: Self = Self { recursive: true, strict: false };
}

impl Summary {
    pub(in crate::meta::client) fn add(&mut self, kind: FileKind, length: u64) {
        if kind == FileKind::Dir {
            self.dirs += 1;
        } else {
            self.files += 1;
        }
        let length = if kind == FileKind::File { length } else { 0 };
        self.length = self.length.saturating_add(length);
        self.size = self.size.saturating_add(align4k(length).cast_unsigned());
    }

    pub(in crate::meta::client) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.dirs += other.dirs;
        // Damaged metadata may contain lengths close to the largest number.
        self.length = self.length.saturating_add(other.length);
        self.size = self.size.saturating_add(other.size);
    }
}

impl Progress {
    pub(in crate::meta::client) fn add_summary(&self, part: Summary) {
        self.add_done(part.files);
        self.add_total(part.dirs);
        self.add_bytes(part.size);
    }
}

impl Meta {
    /// Totals of a subtree. If `strict`, reads every node instead of relying on dir stats.
    pub async fn summary(&self, ino: Ino, strict: bool) -> Result<Summary> {
        let of = SummaryOptions { recursive: true, strict };
        self.summary_with(&Caller::root(), ino, of, &Progress::default()).await
    }

    /// As [`Meta::summary`], for a caller that must be allowed to list all its directories. Counts
    /// files, directories (as the total) and bytes as they are found.
    pub async fn summary_with(
        &self,
        caller: &Caller,
        ino: Ino,
        of: SummaryOptions,
        progress: &Progress,
    ) -> Result<Summary> {
        let attr = self.stored_attr(ino).await?.ok_or(Error::NotFound)?;
        let mut top = Summary::default();
        top.add(attr.kind, attr.length);
        progress.add_summary(top);
        if attr.is_dir() {
            let below = self.sum_below(caller, ino, Visit::top(ino), of, progress).await?;
            top.merge(below);
        }
        Ok(top)
    }

    /// Totals of everything below a directory, without itself.
    pub(in crate::meta::client) async fn sum_below(
        &self,
        caller: &Caller,
        top: Ino,
        first: Visit,
        of: SummaryOptions,
        progress: &Progress,
    ) -> Result<Summary> {
        let sum = Mutex::new(Summary::default());
        let by_stats = !of.strict && self.context.setting().dir_stats;
        let work = async |visit: Visit, limit| {
            let dir = visit.dir;
            let mut part = PartialSum::default();
            if !visit.is_started() {
                let Some(attr) = self.enter(caller, top, &visit).await? else {
                    return Ok(Vec::new());
                };
                if by_stats {
                    part = PartialSum::of_stat(self.dir_stat_of(&visit).await?, attr.nlink);
                    // Two links are the directory's name and its own `.` entry: it has no
                    // sub-directories.
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
                let entries = visit.entries_with_attrs(self, limit, &mut next).await?;
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
        run_work_list(vec![first], AT_ONCE, progress, work).await?;
        Ok(sum.into_inner())
    }

    /// The dir stat; empty if the directory was removed since it was listed.
    async fn dir_stat_of(&self, visit: &Visit) -> Result<DirStat> {
        match self.dir_stat(visit.dir).await {
            Err(Error::NotFound) if !visit.is_top() => Ok(DirStat::default()),
            other => other,
        }
    }

    /// Compares the dir stats of a subtree with its entries; returns those that are wrong, and
    /// corrects them if `repair`.
    pub async fn check_dir_stats(&self, top: Ino, repair: bool) -> Result<Vec<StatCheck>> {
        if !self.context.setting().dir_stats {
            return Err(Error::bad_input("the volume has no dir stats"));
        }
        self.flush_dir_stats().await?;
        let wrong = Mutex::new(Vec::new());
        let caller = Caller::root();
        let work = async |visit: Visit, limit| {
            let dir = visit.dir;
            if !visit.is_started() {
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
        run_work_list(vec![Visit::top(top)], AT_ONCE, &Progress::default(), work).await?;
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
struct PartialSum {
    sum: Summary,
    /// Directories found that a dir stat has counted as files.
    dirs_among_files: u64,
    /// Sub-directories by the link count.
    links: u64,
}

impl PartialSum {
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
        progress.add_summary(Summary { files, ..self.sum });
        progress.add_total(self.dirs_among_files);
        let mut sum = sum.lock();
        sum.merge(self.sum);
        sum.files = sum.files.saturating_sub(self.dirs_among_files);
        sum.dirs += self.dirs_among_files;
    }
}
