//! Compacting all files of a tree.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::warn;

use crate::error::{Error, Result};
use crate::meta::client::tree::walk::{Visit, run_work_list};
use crate::meta::client::{Meta, Progress};
use crate::meta::op::attrs::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino};

/// Files processed one after the other by one work item.
const FILES_PER_ITEM: usize = 16;

/// Failures that are logged; further ones are only counted.
const MAX_LOGGED: u64 = 10;

/// A compaction of a tree in progress.
struct Compactor<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    top: Ino,
    progress: &'a Progress,
    /// The first failure. The other files are still tried.
    failure: OnceLock<Error>,
    failures: AtomicU64,
}

/// A work item.
enum Work {
    Dir(Visit),
    Files(Vec<(Ino, Attr)>),
}

impl Meta {
    /// Compacts every file of a subtree that the caller may write, `at_once` of them concurrently.
    /// Chunks are counted when they are found and when they are done; the first failure is returned
    /// after all files were tried.
    pub async fn compact_tree(
        &self,
        caller: &Caller,
        ino: Ino,
        at_once: usize,
        progress: &Progress,
    ) -> Result<()> {
        self.check_writable()?;
        let attr = self.stored_attr(ino).await?.ok_or(Error::NotFound)?;
        let first = match attr.kind {
            FileKind::Dir => Work::Dir(Visit::top(ino)),
            FileKind::File => Work::Files(vec![(ino, attr)]),
            _ => return Ok(()),
        };
        let (failure, failures) = (OnceLock::new(), AtomicU64::new(0));
        let compactor = Compactor { meta: self, caller, top: ino, progress, failure, failures };
        run_work_list(vec![first], at_once, progress, |work, page| {
            compactor.process_item(work, page)
        })
        .await?;
        compactor.failure.into_inner().map_or(Ok(()), Err)
    }
}

impl Compactor<'_> {
    async fn process_item(&self, work: Work, limit: usize) -> Result<Vec<Work>> {
        let visit = match work {
            Work::Dir(visit) => visit,
            Work::Files(files) => {
                for (ino, attr) in files {
                    self.progress.check()?;
                    if let Err(error) = self.compact_file(ino, &attr).await {
                        self.record_failure(ino, error)?;
                    }
                }
                return Ok(Vec::new());
            }
        };
        let (meta, dir, is_top) = (self.meta, visit.dir, visit.is_top());
        if !visit.is_started() {
            match meta.enter(self.caller, self.top, &visit).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Vec::new()),
                Err(error) if is_top => return Err(error),
                Err(error) => return self.record_failure(dir, error).map(|()| Vec::new()),
            }
        }
        let mut rest = Vec::new();
        let entries = visit.entries_with_attrs(meta, limit, &mut rest).await?;
        let dirs = meta.dirs_among(self.top, dir, &entries);
        let files = entries.into_iter().filter_map(|entry| Some((entry.ino, entry.attr?)));
        let files: Vec<_> = files.filter(|(_, attr)| attr.is_file()).collect();
        let rest = rest.into_iter().chain(dirs.into_iter().map(|ino| Visit::below(ino, dir)));
        let files = files.chunks(FILES_PER_ITEM).map(|files| Work::Files(files.to_vec()));
        Ok(rest.map(Work::Dir).chain(files).collect())
    }

    async fn compact_file(&self, ino: Ino, attr: &Attr) -> Result<()> {
        self.meta.permits(self.caller, attr, access::WRITE).await?;
        let indexes = self.meta.chunk_indexes(ino, attr.length).await?;
        self.progress.add_total(indexes.len() as u64);
        for index in indexes {
            self.progress.check()?;
            match self.meta.compact(ino, index, true).await {
                // The file was removed meanwhile.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => self.record_failure(ino, error)?,
            }
            self.progress.add_done(1);
        }
        Ok(())
    }

    /// Records a failure; only a cancellation ends the walk.
    fn record_failure(&self, ino: Ino, error: Error) -> Result<()> {
        if matches!(error, Error::Interrupted) {
            return Err(error);
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) < MAX_LOGGED && error.is_fault() {
            warn!(ino = ino.0, %error, "cannot compact a chunk");
        }
        let _ = self.failure.set(error);
        Ok(())
    }
}
