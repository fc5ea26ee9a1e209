//! Cloning files and whole trees.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::meta::client::api::listing::DirEntry;
use crate::meta::client::api::names::is_trash_name;
use crate::meta::client::tree::summary::SummaryOptions;
use crate::meta::client::tree::walk::{Visit, run_work_list};
use crate::meta::client::{Meta, Progress};
use crate::meta::op::attrs::access;
use crate::meta::op::names::clone::{
    Attach, ChunkHint, CloneNodes, Cloned, Clones, DropDetached, PLAIN_CHUNKS, Source,
};
use crate::meta::op::quota_check::{self, UsageRequest};
use crate::meta::record::{Attr, CHUNK_SIZE, FileKind};
use crate::meta::{Caller, CloneMode, EntryRef, Ino, MetaTxn};

/// Directories cloned concurrently by default.
const AT_ONCE: usize = 4;
/// Nodes per commit.
const BATCH: usize = 100;

/// A clone in progress.
struct Cloner<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    mode: CloneMode,
    /// The top of the source; never entered from below.
    top: Ino,
    progress: &'a Progress,
}

/// A source directory and its copy, before its first or between two pages.
struct DirPair {
    src: Visit,
    dst: Ino,
}

impl Meta {
    /// Clones `src` as `target`, `at_once` directories concurrently (0 for the default). Counts nodes
    /// as they are created. A directory appears under its
    /// name only when it is complete.
    pub async fn clone_tree(
        &self,
        caller: &Caller,
        src: Ino,
        target: EntryRef<'_>,
        mode: CloneMode,
        at_once: usize,
        progress: &Progress,
    ) -> Result<Ino> {
        let EntryRef { dir, name } = target;
        if src.is_trash() || dir.is_trash() || is_trash_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        self.check_writable()?;
        let attr = self.getattr(src).await?;
        if attr.parent.is_sub_trash() {
            return Err(Error::NotPermitted);
        }
        self.check_quotas(caller, src, &attr, dir, progress).await?;
        let entry = DirEntry { name: name.clone(), ino: src, kind: attr.kind, attr: Some(attr) };
        let nodes = self.clone_batch(caller, vec![entry], dir, mode, true).await?;
        let top = nodes.into_iter().next().ok_or(Error::NotFound)?;
        progress.add_done(1);
        if !top.attr.is_dir() {
            return Ok(top.ino);
        }
        let at_once = if at_once == 0 { AT_ONCE } else { at_once };
        let cloner = Cloner { meta: self, caller, mode, top: top.src, progress };
        let attached = async {
            let first = DirPair { src: Visit::top(top.src), dst: top.ino };
            run_work_list(vec![first], at_once, progress, |pair, page| {
                cloner.clone_page(pair, page)
            })
            .await?;
            self.run(&Attach { caller, ino: top.ino, dir, name }).await
        };
        match attached.await {
            Ok(()) => Ok(top.ino),
            Err(error) => {
                // The rest is left to the job that removes detached trees.
                let _ = self.drop_detached(top.ino).await;
                Err(error)
            }
        }
    }

    /// Removes incomplete clones that were started before `edge` (unix seconds).
    pub async fn clean_detached(&self, edge: i64) -> Result<u64> {
        let trees = self.engine.detached(edge).await?;
        let mut outcome = Ok(());
        for ino in &trees {
            // A failure of one does not prevent the others.
            outcome = outcome.and(self.drop_detached(*ino).await);
        }
        outcome.map(|()| trees.len() as u64)
    }

    async fn drop_detached(&self, ino: Ino) -> Result<()> {
        self.empty(&Caller::root(), ino).await.1?;
        self.run(&DropDetached { ino }).await
    }

    async fn check_quotas(
        &self,
        caller: &Caller,
        src: Ino,
        attr: &Attr,
        dir: Ino,
        progress: &Progress,
    ) -> Result<()> {
        let mut tx = MetaTxn::new(self.engine.begin(), &self.context);
        access::check(&mut tx, caller, attr, access::READ).await?;
        let usage =
            self.summary_with(caller, src, SummaryOptions::TREE, &Progress::default()).await?;
        progress.add_total(usage.files + usage.dirs);
        if !quota_check::is_limited(&self.context) {
            return Ok(());
        }
        let usage_request = UsageRequest {
            uid: caller.uid,
            gid: caller.gid,
            space: usage.size.cast_signed(),
            inodes: (usage.files + usage.dirs).cast_signed(),
        };
        quota_check::check(&mut tx, usage_request, &[dir]).await
    }

    async fn clone_batch(
        &self,
        caller: &Caller,
        mut entries: Vec<DirEntry>,
        dir: Ino,
        mode: CloneMode,
        top: bool,
    ) -> Result<Vec<Cloned>> {
        loop {
            let mut sources = Vec::with_capacity(entries.len());
            for entry in &entries {
                let ino = self.new_inode().await?;
                let chunks = self.chunk_hint(entry).await?;
                sources.push(Source { src: entry.ino, name: entry.name.clone(), ino, chunks });
            }
            match self.run(&CloneNodes { caller, sources: &sources, dir, mode, top }).await? {
                Clones::CreateOutcome(nodes) => return Ok(nodes),
                // The files have changed since they were listed.
                Clones::Stale => entries.iter_mut().for_each(|entry| entry.attr = None),
            }
        }
    }

    /// The chunks of a file that has very many, so that absent ones are not read.
    async fn chunk_hint(&self, entry: &DirEntry) -> Result<Option<ChunkHint>> {
        let large = |attr: &Attr| attr.is_file() && attr.length / CHUNK_SIZE >= PLAIN_CHUNKS;
        if entry.kind != FileKind::File || !entry.attr.as_ref().is_none_or(large) {
            return Ok(None);
        }
        let attr = self.getattr(entry.ino).await?;
        let indexes = self.engine.chunk_indexes(entry.ino, attr.length).await?;
        Ok(Some(ChunkHint { length: attr.length, mtime: attr.mtime, indexes }))
    }
}

impl Cloner<'_> {
    /// Clones a page of a directory; returns the directories in it as further work.
    async fn clone_page(&self, pair: DirPair, limit: usize) -> Result<Vec<DirPair>> {
        let (meta, DirPair { src, dst }) = (self.meta, pair);
        let (dir, mut rest) = (src.dir, Vec::new());
        let mut entries = src.entries_with_attrs(meta, limit, &mut rest).await?;
        let own = meta.dirs_among(self.top, dir, &entries);
        let mut own: HashSet<Ino> = own.into_iter().collect();
        entries.retain(|entry| entry.kind != FileKind::Dir || own.remove(&entry.ino));
        let mut next: Vec<DirPair> = rest.into_iter().map(|src| DirPair { src, dst }).collect();
        for batch in entries.chunks(BATCH) {
            self.progress.check()?;
            let made = meta.clone_batch(self.caller, batch.to_vec(), dst, self.mode, false).await?;
            self.progress.add_done(made.len() as u64);
            let below = made.into_iter().filter(|node| node.attr.is_dir());
            next.extend(
                below.map(|Cloned { src, ino, .. }| DirPair {
                    src: Visit::below(src, dir),
                    dst: ino,
                }),
            );
        }
        Ok(next)
    }
}
