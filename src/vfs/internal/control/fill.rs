//! Blocks brought into the cache, taken from it or looked for in it, by request.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::fcntl::OFlag;
use serde::Serialize;
use tracing::{info, warn};

use super::answer::{Answer, lock};
use super::request::{Action, Fill};
use super::resolve::resolve;
use crate::error::{Error, Result};
use crate::meta::client::{Crew, Progress};
use crate::meta::op::access;
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

/// One request under way.
struct Filler<'a> {
    work: &'a Work,
    caller: &'a Caller,
    action: Action,
    crew: Crew<'a>,
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
            crew: Crew::new(ask.threads.into(), progress),
            slices: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            locations: Mutex::default(),
        };
        for path in &ask.paths {
            if let Err(error) = filler.path(path).await {
                warn!(path = %String::from_utf8_lossy(path), %error, "cannot deal with a path");
            }
        }
        info!(action = ?ask.action, paths = ask.paths.len(), files = progress.done(), "cache dealt with");
        Response {
            file_count: progress.done(),
            slice_count: filler.slices.into_inner(),
            total_bytes: progress.bytes(),
            miss_bytes: filler.missing.into_inner(),
            locations: std::mem::take(&mut *lock(&filler.locations)),
        }
    }
}

impl Filler<'_> {
    async fn path(&self, path: &[u8]) -> Result<()> {
        let (ino, attr) = resolve(self.work, self.caller, path).await?;
        match attr.kind {
            FileKind::Dir => self.dir(ino, attr).await,
            FileKind::File => self.file(ino, attr.length).await,
            _ => Ok(()),
        }
    }

    fn dir(&self, ino: Ino, attr: Attr) -> BoxFuture<'_, Result<()>> {
        async move {
            let meta = &self.work.meta;
            meta.permits(self.caller, &attr, access::READ | access::EXEC).await?;
            let mut listing = meta.list(ino, true);
            while let Some(page) = listing.next().await? {
                let nodes = page.into_iter().filter_map(|entry| Some((entry.ino, entry.attr?)));
                self.crew.run(nodes.collect(), |(ino, attr)| self.node(ino, attr).boxed()).await?;
            }
            Ok(())
        }
        .boxed()
    }

    /// An entry of a directory. What fails is told and does not keep the others from being tried.
    async fn node(&self, ino: Ino, attr: Attr) -> Result<()> {
        let done = match attr.kind {
            FileKind::Dir => self.dir(ino, attr).await,
            FileKind::Symlink => Ok(()),
            _ => self.file(ino, attr.length).await,
        };
        match done {
            Err(error @ Error::Interrupted) => Err(error),
            Err(error) => {
                warn!(ino = ino.0, %error, "cannot deal with a file");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn file(&self, ino: Ino, length: u64) -> Result<()> {
        let meta = &self.work.meta;
        if self.action == Action::Warm && !meta.facts().options.open_cache.is_zero() {
            // Its attr is kept, and with it what its chunks hold.
            meta.open_file(self.caller, ino, OFlag::O_RDONLY).await?;
            meta.close_file(ino).await?;
        }
        for index in meta.chunk_indexes(ino, length).await? {
            let view = meta.read(ino, index).await?;
            let slices = view.iter().filter(|fragment| !fragment.id.is_hole());
            let slices = slices.map(|fragment| SliceSize { id: fragment.id, size: fragment.size });
            let slices = slices.collect();
            self.crew.run(slices, |slice| self.slice(ino, slice).boxed()).await?;
        }
        self.crew.progress().did(1);
        Ok(())
    }

    /// All of a slice, of which a file may use only a part: so the tools count it.
    async fn slice(&self, ino: Ino, slice: SliceSize) -> Result<()> {
        self.slices.fetch_add(1, Ordering::Relaxed);
        self.crew.progress().saw(slice.size.into());
        let (store, range) = (&self.work.store, 0..slice.size);
        match self.action {
            Action::Warm => {
                if let Err(error) = store.warm(slice, range).await {
                    warn!(ino = ino.0, slice = slice.id.0, %error, "cannot warm a slice");
                }
            }
            Action::Evict => store.evict(slice, range),
            Action::Check => {
                for (block, place) in store.locate(slice, range) {
                    let size = u64::from(block.size);
                    match place {
                        Some(place) => *lock(&self.locations).entry(place).or_default() += size,
                        None => drop(self.missing.fetch_add(size, Ordering::Relaxed)),
                    }
                }
            }
        }
        Ok(())
    }
}
