//! Blocks brought into the cache, taken from it or looked for in it, by request.

use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{StreamExt, stream};
use nix::fcntl::OFlag;
use serde::Serialize;
use tracing::{info, warn};

use super::answer::Answer;
use super::request::{Action, Fill};
use super::resolve::resolve;
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Visit, run_work_list};
use crate::meta::op::attrs::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino};
use crate::slice::SliceSize;
use crate::vfs::internal::Work;

/// Field for field what the tools read.
#[derive(Serialize, Default, Debug, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
struct Response {
    file_count: u64,
    slice_count: u64,
    total_bytes: u64,
    miss_bytes: u64,
    locations: BTreeMap<String, u64>,
}

/// What is to be dealt with.
enum Item {
    Dir(Visit),
    File(Ino, u64),
}

/// Failures that are told one by one.
const TOLD: u64 = 10;
/// Bytes of a path that are told.
const SHOWN: usize = 256;
/// Slices of one chunk dealt with at once.
const SLICES_AT_ONCE: usize = 8;

/// One request under way.
struct Filler<'a> {
    work: &'a Work,
    caller: &'a Caller,
    action: Action,
    threads: usize,
    progress: &'a Progress,
    failures: AtomicU64,
    slices: AtomicU64,
    missing: AtomicU64,
    locations: Mutex<BTreeMap<String, u64>>,
}

impl Work {
    pub async fn fill(self: std::sync::Arc<Self>, caller: Caller, ask: Fill, answer: Answer) {
        if ask.action == Action::Warm && !self.store.has_cache() {
            warn!("blocks cannot be brought into a cache: the mount has none");
            return answer.end(Err(Error::NotSupported));
        }
        if ask.background {
            answer.end_with(&Response::default());
            let progress = Progress::default();
            self.stop.run_until_cancelled(self.fill_paths(&caller, &ask, &progress)).await;
            return;
        }
        let progress = Progress::default();
        let shown = |progress: &Progress| (progress.done(), progress.bytes());
        // It changes nothing but the cache, so it can end anywhere.
        let work =
            answer.cancelled().run_until_cancelled(self.fill_paths(&caller, &ask, &progress));
        match answer.watch(&progress, shown, work).await {
            Some(response) => answer.end_with(&response),
            None => answer.end(Err(Error::Interrupted)),
        }
    }

    async fn fill_paths(&self, caller: &Caller, ask: &Fill, progress: &Progress) -> Response {
        let filler = Filler {
            work: self,
            caller,
            action: ask.action,
            threads: ask.threads.into(),
            progress,
            failures: AtomicU64::new(0),
            slices: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            locations: Mutex::default(),
        };
        let mut paths = 0;
        for path in ask.paths.iter() {
            paths += 1;
            if let Err(error) = filler.path(&path).await {
                let shown = path.slice(..path.len().min(SHOWN)).escape_ascii().to_string();
                filler.failed(|| warn!(path = shown, %error, "cannot deal with a path"));
            }
        }
        info!(action = ?ask.action, paths, files = progress.done(), "cache dealt with");
        Response {
            file_count: progress.done(),
            slice_count: filler.slices.into_inner(),
            total_bytes: progress.bytes(),
            miss_bytes: filler.missing.into_inner(),
            locations: std::mem::take(&mut *filler.locations.lock()),
        }
    }
}

impl Filler<'_> {
    async fn path(&self, path: &Bytes) -> Result<()> {
        let (ino, attr) = resolve(self.work, self.caller, path).await?;
        let first = match attr.kind {
            FileKind::Dir => Item::Dir(Visit::top(ino)),
            FileKind::File => {
                self.work.meta.permits(self.caller, &attr, access::READ).await?;
                Item::File(ino, attr.length)
            }
            _ => return Ok(()),
        };
        let work = |item, limit| self.item(ino, item, limit);
        run_work_list(vec![first], self.threads, self.progress, work).await
    }

    /// What fails is told and does not keep the others from being tried.
    async fn item(&self, top: Ino, item: Item, limit: usize) -> Result<Vec<Item>> {
        let (ino, is_first) = match &item {
            Item::Dir(visit) => (visit.dir, visit.is_top() && !visit.is_started()),
            Item::File(ino, _) => (*ino, *ino == top),
        };
        let done = match item {
            Item::Dir(visit) => self.dir(top, visit, limit).await,
            Item::File(ino, length) => self.file(ino, length).await.map(|()| Vec::new()),
        };
        match done {
            Err(error) if is_first || matches!(error, Error::Interrupted) => Err(error),
            Err(error) => {
                self.failed(|| warn!(ino = ino.0, %error, "cannot deal with a file"));
                Ok(Vec::new())
            }
            done => done,
        }
    }

    async fn dir(&self, top: Ino, visit: Visit, limit: usize) -> Result<Vec<Item>> {
        let (meta, dir) = (&self.work.meta, visit.dir);
        if !visit.is_started() && meta.enter(self.caller, top, &visit).await?.is_none() {
            return Ok(Vec::new());
        }
        let mut rest = Vec::new();
        let entries = visit.entries_with_attrs(meta, limit, &mut rest).await?;
        let dirs = meta.dirs_among(top, dir, &entries).into_iter();
        let dirs = rest.into_iter().chain(dirs.map(|below| Visit::below(below, dir)));
        let mut items: Vec<Item> = dirs.map(Item::Dir).collect();
        for entry in entries {
            let Some(attr) = entry.attr.filter(Attr::is_file) else { continue };
            match meta.permits(self.caller, &attr, access::READ).await {
                Ok(()) => items.push(Item::File(entry.ino, attr.length)),
                Err(error) => {
                    self.failed(|| warn!(ino = entry.ino.0, %error, "cannot deal with a file"));
                }
            }
        }
        Ok(items)
    }

    /// Tells of a failure, if not of too many before.
    fn failed(&self, tell: impl FnOnce()) {
        match self.failures.fetch_add(1, Ordering::Relaxed) {
            TOLD => warn!("more paths and files fail, and are not named"),
            count if count < TOLD => tell(),
            _ => {}
        }
    }

    async fn file(&self, ino: Ino, length: u64) -> Result<()> {
        let meta = &self.work.meta;
        if self.action == Action::Warm && !meta.context().options.open_cache.is_zero() {
            // Its attr is kept, and with it what its chunks hold.
            meta.open_file(self.caller, ino, OFlag::O_RDONLY).await?;
            meta.close_file(ino).await?;
        }
        for index in meta.chunk_indexes(ino, length).await? {
            let view = meta.read(ino, index).await?;
            let slices = view.iter().filter(|fragment| !fragment.id.is_hole());
            let slices = slices.map(|fragment| SliceSize { id: fragment.id, size: fragment.size });
            let slices: Vec<SliceSize> = slices.collect();
            let work = stream::iter(slices).map(|slice| self.slice(ino, slice));
            work.buffer_unordered(SLICES_AT_ONCE).for_each(std::future::ready).await;
            self.progress.check()?;
        }
        self.progress.add_done(1);
        Ok(())
    }

    /// All of a slice, of which a file may use only a part: so the tools count it.
    async fn slice(&self, ino: Ino, slice: SliceSize) {
        self.slices.fetch_add(1, Ordering::Relaxed);
        self.progress.add_bytes(slice.size.into());
        let (store, range) = (&self.work.store, 0..slice.size);
        match self.action {
            Action::Warm => {
                if let Err(error) = store.warm_up(slice, range).await {
                    self.failed(|| {
                        warn!(ino = ino.0, slice = slice.id.0, %error, "cannot warm a slice");
                    });
                }
            }
            Action::Evict => store.evict(slice, range),
            Action::Check => {
                for (block, place) in store.locate(slice, range) {
                    let size = u64::from(block.size);
                    match place {
                        Some(place) => *self.locations.lock().entry(place).or_default() += size,
                        None => drop(self.missing.fetch_add(size, Ordering::Relaxed)),
                    }
                }
            }
        }
    }
}
