//! Summaries: what a subtree adds up to, by dir stats or entry by entry, and dir stats that are
//! checked against their entries.

use std::sync::{Mutex, PoisonError};

use super::walk::each_dir;
use super::{Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::attr::align4k;
use crate::meta::record::{DirStat, FileKind};

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

impl Summary {
    pub(super) fn add(&mut self, kind: FileKind, length: u64) {
        if kind == FileKind::Dir {
            self.dirs += 1;
        } else {
            self.files += 1;
        }
        let length = if kind == FileKind::File { length } else { 0 };
        self.length += length;
        self.size += align4k(length).cast_unsigned();
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.dirs += other.dirs;
        self.length += other.length;
        self.size += other.size;
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
        self.summary_as(ino, true, strict, &Progress::default()).await
    }

    /// As [`Meta::summary`]; files, directories (as the total) and their bytes are counted as they are
    /// found. Not `recursive`, what is in sub-directories is left out.
    pub async fn summary_as(
        &self,
        ino: Ino,
        recursive: bool,
        strict: bool,
        progress: &Progress,
    ) -> Result<Summary> {
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let mut top = Summary::default();
        top.add(attr.kind, attr.length);
        progress.summed(top);
        if attr.is_dir() {
            top.merge(self.sum_below(ino, recursive, strict, progress).await?);
        }
        Ok(top)
    }

    /// What is below a directory, itself not included.
    pub(super) async fn sum_below(
        &self,
        ino: Ino,
        recursive: bool,
        strict: bool,
        progress: &Progress,
    ) -> Result<Summary> {
        let sum = Mutex::new(Summary::default());
        let by_stats = !strict && self.facts.setting().dir_stats;
        let visit = async |dir| {
            progress.check()?;
            let summed =
                if by_stats { self.sum_by_stat(dir).await } else { self.sum_by_entries(dir).await };
            let (part, dirs) = match summed {
                // Removed since its parent was listed.
                Err(Error::NotFound) if dir != ino => return Ok(Vec::new()),
                other => other?,
            };
            progress.summed(part);
            sum.lock().unwrap_or_else(PoisonError::into_inner).merge(part);
            Ok(if recursive { dirs } else { Vec::new() })
        };
        each_dir(vec![ino], visit).await?;
        Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Compares the dir stats of a subtree with what the entries add up to; answers those that are
    /// wrong, and corrects them if asked to.
    pub async fn check_dir_stats(&self, top: Ino, repair: bool) -> Result<Vec<StatCheck>> {
        if !self.facts.setting().dir_stats {
            return Err(Error::bad_input("the volume keeps no dir stats"));
        }
        self.flush_dir_stats().await?;
        let wrong = Mutex::new(Vec::new());
        let visit = async |dir| {
            let check = match self.check_dir_stat(dir, repair).await {
                Err(Error::NotFound) if dir != top => return Ok(Vec::new()),
                other => other?,
            };
            if let Some(check) = check {
                wrong.lock().unwrap_or_else(PoisonError::into_inner).push(check);
            }
            self.dirs_in(dir).await
        };
        each_dir(vec![top], visit).await?;
        Ok(wrong.into_inner().unwrap_or_else(PoisonError::into_inner))
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

    /// A directory's entries by its stat, and the directories among them.
    async fn sum_by_stat(&self, dir: Ino) -> Result<(Summary, Vec<Ino>)> {
        let attr = self.attr_now(dir).await?.ok_or(Error::NotFound)?;
        let stat = self.dir_stat(dir).await?;
        // Two links are the name of the directory and its own dot: nothing hangs below.
        let dirs = if attr.nlink > 2 { self.dirs_in(dir).await? } else { Vec::new() };
        let unsigned = |n: i64| n.max(0).cast_unsigned();
        let sum = Summary {
            files: unsigned(stat.inodes).saturating_sub(dirs.len() as u64),
            dirs: dirs.len() as u64,
            length: unsigned(stat.length),
            size: unsigned(stat.space),
        };
        Ok((sum, dirs))
    }

    /// A directory's entries one by one, and the directories among them.
    async fn sum_by_entries(&self, dir: Ino) -> Result<(Summary, Vec<Ino>)> {
        let mut sum = Summary::default();
        let mut dirs = Vec::new();
        let mut listing = self.list(dir, true);
        while let Some(page) = listing.next().await? {
            for entry in page {
                sum.add(entry.kind, entry.attr.map_or(0, |attr| attr.length));
                if entry.kind == FileKind::Dir {
                    dirs.push(entry.ino);
                }
            }
        }
        Ok((sum, dirs))
    }
}
