//! Warming, evicting and checking the block cache by request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::{StreamExt, stream};
use nix::fcntl::OFlag;
use tracing::{info, warn};

use super::reply::ReplyWriter;
use super::resolve::resolve;
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Visit, run_work_list};
use crate::meta::op::attrs::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino};
use crate::slice::SliceSize;
use crate::sync::Mutex;
use crate::vfs::control_protocol::{CacheAction, WarmupRequest, WarmupResponse};
use crate::vfs::virtual_files::ControlContext;

/// A directory or file to process.
enum Item {
    Dir(Visit),
    File(Ino, u64),
}

/// Failures that are logged one by one.
const MAX_LOGGED: u64 = 10;
/// Bytes of a path that are logged.
const MAX_LOGGED_PATH: usize = 256;
/// Slices of one chunk processed at once.
const SLICES_AT_ONCE: usize = 8;

/// One request under way.
struct Warmup<'a> {
    context: &'a ControlContext,
    caller: &'a Caller,
    action: CacheAction,
    threads: usize,
    progress: &'a Progress,
    failures: AtomicU64,
    /// The cache took no more blocks. The next ones would only wait for it in vain.
    is_cache_full: AtomicBool,
    slices: AtomicU64,
    missing: AtomicU64,
    locations: Mutex<BTreeMap<String, u64>>,
}

impl ControlContext {
    pub async fn warmup(
        self: Arc<Self>,
        caller: Caller,
        request: WarmupRequest,
        reply: ReplyWriter,
    ) {
        if request.action == CacheAction::Warm && !self.store.has_cache() {
            warn!("cannot warm the cache: the mount has none");
            return reply.end(Err(Error::NotSupported));
        }
        if request.background {
            reply.end_with(&WarmupResponse::default());
            let progress = Progress::default();
            self.stop.run_until_cancelled(self.warm_paths(&caller, &request, &progress)).await;
            return;
        }
        let progress = Progress::default();
        let shown = |progress: &Progress| (progress.done(), progress.bytes());
        // It changes only the cache, so it can be cancelled anywhere.
        let work =
            reply.cancelled().run_until_cancelled(self.warm_paths(&caller, &request, &progress));
        match reply.watch(&progress, shown, work).await {
            Some(response) => reply.end_with(&response),
            None => reply.end(Err(Error::Interrupted)),
        }
    }

    async fn warm_paths(
        &self,
        caller: &Caller,
        request: &WarmupRequest,
        progress: &Progress,
    ) -> WarmupResponse {
        let warmup = Warmup {
            context: self,
            caller,
            action: request.action,
            threads: request.threads.into(),
            progress,
            failures: AtomicU64::new(0),
            is_cache_full: AtomicBool::new(false),
            slices: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            locations: Mutex::default(),
        };
        let mut paths = 0;
        for path in request.paths.iter() {
            paths += 1;
            if let Err(error) = warmup.path(&path).await {
                let shown =
                    path.slice(..path.len().min(MAX_LOGGED_PATH)).escape_ascii().to_string();
                warmup.failed(|| warn!(path = shown, %error, "cannot process a path"));
            }
        }
        info!(action = ?request.action, paths, files = progress.done(), "processed the cache");
        WarmupResponse {
            file_count: progress.done(),
            slice_count: warmup.slices.into_inner(),
            total_bytes: progress.bytes(),
            miss_bytes: warmup.missing.into_inner(),
            locations: std::mem::take(&mut *warmup.locations.lock()),
        }
    }
}

impl Warmup<'_> {
    async fn path(&self, path: &Bytes) -> Result<()> {
        let (ino, attr) = resolve(self.context, self.caller, path).await?;
        let first = match attr.kind {
            FileKind::Dir => Item::Dir(Visit::top(ino)),
            FileKind::File => {
                self.context.meta.permits(self.caller, &attr, access::READ).await?;
                Item::File(ino, attr.length)
            }
            _ => return Ok(()),
        };
        let work = |item, limit| self.item(ino, item, limit);
        run_work_list(vec![first], self.threads, self.progress, work).await
    }

    /// Logs a failure and goes on with the other items.
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
                self.failed(|| warn!(ino = ino.0, %error, "cannot process a file"));
                Ok(Vec::new())
            }
            done => done,
        }
    }

    async fn dir(&self, top: Ino, visit: Visit, limit: usize) -> Result<Vec<Item>> {
        let (meta, dir) = (&self.context.meta, visit.dir);
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
                    self.failed(|| warn!(ino = entry.ino.0, %error, "cannot process a file"));
                }
            }
        }
        Ok(items)
    }

    /// Counts a failure and logs it, unless there were too many.
    fn failed(&self, log: impl FnOnce()) {
        match self.failures.fetch_add(1, Ordering::Relaxed) {
            MAX_LOGGED => warn!("more paths and files fail; these are not logged"),
            count if count < MAX_LOGGED => log(),
            _ => {}
        }
    }

    async fn file(&self, ino: Ino, length: u64) -> Result<()> {
        let meta = &self.context.meta;
        if self.action == CacheAction::Warm && !meta.context().options.open_cache.is_zero() {
            // Caches its attr, and with it the views of its chunks.
            meta.open_file(self.caller, ino, OFlag::O_RDONLY).await?;
            meta.close_file(ino).await?;
        }
        for index in meta.chunk_indexes(ino, length).await? {
            let view = meta.read(ino, index).await?;
            let slices = view.iter().filter(|slice| !slice.id.is_hole());
            let slices = slices.map(|slice| SliceSize { id: slice.id, size: slice.size });
            let slices: Vec<SliceSize> = slices.collect();
            let work = stream::iter(slices).map(|slice| self.slice(ino, slice));
            work.buffer_unordered(SLICES_AT_ONCE).for_each(std::future::ready).await;
            self.progress.check()?;
        }
        self.progress.add_done(1);
        Ok(())
    }

    /// Processes all of a slice, of which a file may use only a part: the tools count it that way.
    async fn slice(&self, ino: Ino, slice: SliceSize) {
        self.slices.fetch_add(1, Ordering::Relaxed);
        self.progress.add_bytes(slice.size.into());
        let (store, range) = (&self.context.store, 0..slice.size);
        match self.action {
            CacheAction::Warm => {
                if self.is_cache_full.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = store.warm_up(slice, range).await {
                    let is_full = matches!(error, Error::Exhausted(_));
                    self.is_cache_full.fetch_or(is_full, Ordering::Relaxed);
                    self.failed(|| {
                        warn!(ino = ino.0, slice = slice.id.0, %error, "cannot warm a slice");
                    });
                }
            }
            CacheAction::Evict => store.evict(slice, range),
            CacheAction::Check => {
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
