//! Compacting all files of a tree.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::warn;

use super::walk::{Visit, work_off};
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::op::access;
use crate::meta::record::{Attr, FileKind};

/// Files that one after the other make one work.
const FILES: usize = 16;

/// Failures that are told one by one; more are only counted.
const TOLD: u64 = 10;

/// One compaction of a tree under way.
struct Compactor<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    top: Ino,
    progress: &'a Progress,
    /// The first that went wrong. It does not keep the others from being tried.
    failure: OnceLock<Error>,
    failures: AtomicU64,
}

/// What is to be compacted.
enum Work {
    Dir(Visit),
    Files(Vec<(Ino, Attr)>),
}

impl Meta {
    /// Compacts every file of a subtree that the caller may write, `at_once` of them beside each other.
    /// Chunks are counted as they are found and as they are dealt with; the first that fails is told
    /// after all were tried.
    pub async fn compact_tree(
        &self,
        caller: &Caller,
        ino: Ino,
        at_once: usize,
        progress: &Progress,
    ) -> Result<()> {
        self.refuse_writes()?;
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let first = match attr.kind {
            FileKind::Dir => Work::Dir(Visit::top(ino)),
            FileKind::File => Work::Files(vec![(ino, attr)]),
            _ => return Ok(()),
        };
        let (failure, failures) = (OnceLock::new(), AtomicU64::new(0));
        let compactor = Compactor { meta: self, caller, top: ino, progress, failure, failures };
        work_off(vec![first], at_once, progress, |work, page| compactor.work(work, page)).await?;
        compactor.failure.into_inner().map_or(Ok(()), Err)
    }
}

impl Compactor<'_> {
    async fn work(&self, work: Work, limit: usize) -> Result<Vec<Work>> {
        let visit = match work {
            Work::Dir(visit) => visit,
            Work::Files(files) => {
                for (ino, attr) in files {
                    self.progress.check()?;
                    if let Err(error) = self.file(ino, &attr).await {
                        self.failed(ino, error)?;
                    }
                }
                return Ok(Vec::new());
            }
        };
        let (meta, dir, is_top) = (self.meta, visit.dir, visit.is_top());
        if !visit.is_begun() {
            match meta.enter(self.caller, self.top, &visit).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Vec::new()),
                Err(error) if is_top => return Err(error),
                Err(error) => return self.failed(dir, error).map(|()| Vec::new()),
            }
        }
        let mut rest = Vec::new();
        let entries = visit.nodes(meta, limit, &mut rest).await?;
        let dirs = meta.dirs_among(self.top, dir, &entries);
        let files = entries.into_iter().filter_map(|entry| Some((entry.ino, entry.attr?)));
        let files: Vec<_> = files.filter(|(_, attr)| attr.is_file()).collect();
        let rest = rest.into_iter().chain(dirs.into_iter().map(|ino| Visit::below(ino, dir)));
        let files = files.chunks(FILES).map(|files| Work::Files(files.to_vec()));
        Ok(rest.map(Work::Dir).chain(files).collect())
    }

    async fn file(&self, ino: Ino, attr: &Attr) -> Result<()> {
        self.meta.permits(self.caller, attr, access::WRITE).await?;
        let indexes = self.meta.chunk_indexes(ino, attr.length).await?;
        self.progress.found(indexes.len() as u64);
        for index in indexes {
            self.progress.check()?;
            match self.meta.compact(ino, index, true).await {
                // The file went meanwhile.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => self.failed(ino, error)?,
            }
            self.progress.did(1);
        }
        Ok(())
    }

    /// Takes note of a failure; giving up is none.
    fn failed(&self, ino: Ino, error: Error) -> Result<()> {
        if matches!(error, Error::Interrupted) {
            return Err(error);
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) < TOLD && error.is_fault() {
            warn!(ino = ino.0, %error, "cannot compact");
        }
        let _ = self.failure.set(error);
        Ok(())
    }
}
