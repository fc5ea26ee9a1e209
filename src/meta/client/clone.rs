//! Cloning files and whole trees.

use std::collections::HashSet;

use super::listing::DirEntry;
use super::summary::SummaryOf;
use super::walk::{Visit, work_off};
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::op::access;
use crate::meta::op::clone::{
    Attach, ChunkHint, CloneMode, CloneNodes, Cloned, Clones, DropDetached, PLAIN_CHUNKS, Source,
};
use crate::meta::op::room;
use crate::meta::record::{Attr, CHUNK_SIZE, FileKind};
use crate::meta::{Ino, MetaTxn, Name};

/// Directories cloned at once, unless told otherwise.
const AT_ONCE: usize = 4;
/// Nodes of one commit.
const BATCH: usize = 100;

/// One clone of a tree under way.
struct Cloner<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    mode: CloneMode,
    /// The source of it all; never entered from below.
    top: Ino,
    progress: &'a Progress,
}

/// A directory to be cloned into another, at its beginning or between two pages.
struct Pair {
    src: Visit,
    dst: Ino,
}

impl Meta {
    /// Clones `src` as `dir/name`, `at_once` directories beside each other (0: as many as usual);
    /// counts nodes as they are made. A directory appears under its name only when it is complete.
    pub async fn clone_tree(
        &self,
        caller: &Caller,
        src: Ino,
        (dir, name): (Ino, &Name),
        (mode, at_once): (CloneMode, usize),
        progress: &Progress,
    ) -> Result<Ino> {
        if src.is_trash() || dir.is_trash() || super::names::is_trash_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        self.refuse_writes()?;
        let attr = self.getattr(src).await?;
        if attr.parent.is_sub_trash() {
            return Err(Error::NotPermitted);
        }
        self.refuse_without_room(caller, src, &attr, dir, progress).await?;
        let entry = DirEntry { name: name.clone(), ino: src, kind: attr.kind, attr: Some(attr) };
        let nodes = self.clone_batch(caller, vec![entry], dir, mode, true).await?;
        let top = nodes.into_iter().next().ok_or(Error::NotFound)?;
        progress.did(1);
        if !top.attr.is_dir() {
            return Ok(top.ino);
        }
        let at_once = if at_once == 0 { AT_ONCE } else { at_once };
        let cloner = Cloner { meta: self, caller, mode, top: top.src, progress };
        let attached = async {
            let first = Pair { src: Visit::top(top.src), dst: top.ino };
            work_off(vec![first], at_once, progress, |pair, page| cloner.clone_page(pair, page))
                .await?;
            self.run(&Attach { caller, ino: top.ino, dir, name }).await
        };
        match attached.await {
            Ok(()) => Ok(top.ino),
            Err(error) => {
                // What cannot be removed now is left to the job that cleans detached trees.
                let _ = self.drop_detached(top.ino).await;
                Err(error)
            }
        }
    }

    /// Removes trees of clones that were begun before `edge` (unix seconds) and never finished.
    pub async fn clean_detached(&self, edge: i64) -> Result<u64> {
        let trees = self.engine.detached(edge).await?;
        let mut outcome = Ok(());
        for ino in &trees {
            // What stays of one does not keep the others.
            outcome = outcome.and(self.drop_detached(*ino).await);
        }
        outcome.map(|()| trees.len() as u64)
    }

    async fn drop_detached(&self, ino: Ino) -> Result<()> {
        self.empty(&Caller::root(), ino).await.1?;
        self.run(&DropDetached { ino }).await
    }

    async fn refuse_without_room(
        &self,
        caller: &Caller,
        src: Ino,
        attr: &Attr,
        dir: Ino,
        progress: &Progress,
    ) -> Result<()> {
        let mut tx = MetaTxn::new(self.engine.begin(), &self.facts);
        access::permits(&mut tx, caller, attr, access::READ).await?;
        let usage = self.summary_as(caller, src, SummaryOf::TREE, &Progress::default()).await?;
        progress.found(usage.files + usage.dirs);
        if !room::is_limited(&self.facts) {
            return Ok(());
        }
        let wanted = room::Wanted {
            uid: caller.uid,
            gid: caller.gid,
            space: usage.size.cast_signed(),
            inodes: (usage.files + usage.dirs).cast_signed(),
        };
        room::check(&mut tx, wanted, &[dir]).await
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
                Clones::Made(nodes) => return Ok(nodes),
                // The files changed since they were listed.
                Clones::Stale => entries.iter_mut().for_each(|entry| entry.attr = None),
            }
        }
    }

    /// Which chunks a file of very many has, so that the absent ones are not asked for.
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
    /// Clones a page of a directory; the directories in it are what is to be done next.
    async fn clone_page(&self, pair: Pair, limit: usize) -> Result<Vec<Pair>> {
        let (meta, Pair { src, dst }) = (self.meta, pair);
        let (dir, mut rest) = (src.dir, Vec::new());
        let mut entries = src.nodes(meta, limit, &mut rest).await?;
        let own = meta.dirs_among(self.top, dir, &entries);
        let mut own: HashSet<Ino> = own.into_iter().collect();
        entries.retain(|entry| entry.kind != FileKind::Dir || own.remove(&entry.ino));
        let mut next: Vec<Pair> = rest.into_iter().map(|src| Pair { src, dst }).collect();
        for batch in entries.chunks(BATCH) {
            self.progress.check()?;
            let made = meta.clone_batch(self.caller, batch.to_vec(), dst, self.mode, false).await?;
            self.progress.did(made.len() as u64);
            let below = made.into_iter().filter(|node| node.attr.is_dir());
            next.extend(
                below.map(|Cloned { src, ino, .. }| Pair { src: Visit::below(src, dir), dst: ino }),
            );
        }
        Ok(next)
    }
}
