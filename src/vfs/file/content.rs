//! The content of all files of a mount: open files by inode, their dirty data, and readers.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use futures::future::join_all;
use nix::fcntl::OFlag;
use tokio::runtime::Handle;

use super::flush_timer::{FlushTimer, freeze_when_due};
use super::open_file::{OpenFile, WriteStep};
use super::reader::Reader;
use crate::chunk::{Budget, Reclaim, Reserved, Store};
use crate::error::{Result, joined};
use crate::ledger::{Ledger, LedgerSlot};
use crate::meta::chunk_range::check_file_end;
use crate::meta::client::Opened;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Meta};
use crate::sync::{Mutex, MutexGuard};

/// The content options of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentOptions {
    /// Bytes of readahead per stream; 256 MiB by default. Never more than the stream's share of the
    /// budget.
    pub max_readahead: Option<u64>,
    /// Bytes of dirty data that this mount can always hold, however much other mounts of the volume
    /// hold.
    pub floor: usize,
}

impl ContentOptions {
    /// The most bytes of readahead per stream by default: more than any store needs.
    pub const MAX_READAHEAD: u64 = 256 << 20;
}

/// The content of all files of a mount.
pub struct Content {
    pub(super) meta: Arc<Meta>,
    pub(super) store: Arc<Store>,
    /// The part of the budget that is for dirty data.
    dirty: Arc<Budget>,
    pub(super) max_readahead: u64,
    /// The window of a stream that was read for a while: new ones start with a part of it.
    pub(super) usual_window: AtomicU64,
    pub(super) flush_timer: FlushTimer,
    /// Where files with written data are listed.
    ledger: Option<Arc<Ledger>>,
    files: Mutex<HashMap<Ino, Weak<OpenFile>>>,
    /// Writes arrive on threads outside the runtime.
    runtime: Handle,
}

impl Content {
    /// Shares the memory of the store. Must be called within the runtime that is to run the tasks.
    pub fn new(meta: Arc<Meta>, store: Arc<Store>, options: ContentOptions) -> Arc<Self> {
        Self::with_ledger(meta, store, options, None)
    }

    /// As [`Content::new`]; the ledger lists the files whose data is lost if this process dies.
    pub fn with_ledger(
        meta: Arc<Meta>,
        store: Arc<Store>,
        options: ContentOptions,
        ledger: Option<Arc<Ledger>>,
    ) -> Arc<Self> {
        let budget = Arc::clone(store.budget());
        let dirty = match options.floor {
            0 => Arc::clone(store.dirty()),
            floor => store.dirty().share(floor, store.dirty().capacity()),
        };
        let content = Arc::new(Self {
            max_readahead: options.max_readahead.unwrap_or(ContentOptions::MAX_READAHEAD),
            usual_window: AtomicU64::new(0),
            dirty,
            meta,
            store,
            flush_timer: FlushTimer::default(),
            ledger,
            files: Mutex::default(),
            runtime: Handle::current(),
        });
        let keeper: Weak<dyn Reclaim> = Arc::<Self>::downgrade(&content);
        budget.reclaim_from(keeper);
        content.runtime.spawn(freeze_when_due(Arc::downgrade(&content)));
        content
    }

    /// Opens an existing file. The reader stands for the handle: the file keeps an error until the
    /// last reader of it is dropped.
    pub async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        flags: OFlag,
    ) -> Result<(Opened, Reader)> {
        let known = self.find(ino).map(|file| (file.length_version(), file));
        let mut opened = self.meta.open_file(caller, ino, flags).await?;
        let reader = self.reader(ino, &opened.attr);
        if let Some((version, file)) = known {
            opened.attr = file.merge_attr(opened.attr, version);
        }
        Ok((opened, reader))
    }

    /// Opens a file again that another process of this session opened.
    pub async fn reopen(self: &Arc<Self>, ino: Ino) -> Result<Reader> {
        let attr = self.meta.reopen_file(ino).await?;
        Ok(self.reader(ino, &attr))
    }

    /// Fails an open file whose written data was lost with an earlier process. Returns false if the
    /// file is not open.
    pub fn fail_lost(&self, ino: Ino, slot: Option<LedgerSlot>) -> bool {
        let Some(file) = self.find(ino) else { return false };
        file.fail_lost(slot);
        true
    }

    /// Returns a handle of a file that was just created or opened with this attr.
    pub fn reader(self: &Arc<Self>, ino: Ino, attr: &Attr) -> Reader {
        let file = self.find_or_create(ino, attr);
        file.open();
        Reader::new(file)
    }

    /// Takes bytes into memory. Waits only if there is no room for them; then the oldest dirty data
    /// is stored first.
    ///
    /// If the future is dropped, the file has taken the bytes up to some point, and none after it.
    pub async fn write(self: &Arc<Self>, ino: Ino, off: u64, bytes: &[u8]) -> Result<()> {
        check_file_end(off, bytes.len() as u64)?;
        let file = match self.find(ino) {
            Some(file) => file,
            None => self.find_or_create(ino, &self.meta.getattr(ino).await?),
        };
        let (mut done, mut room) = (0, None);
        while done < bytes.len() {
            match file.take(off + done as u64, &bytes[done..], &mut room)? {
                WriteStep::Bytes(count) => done += count,
                WriteStep::NeedsMemory(wanted) => {
                    // Released before waiting: whoever waits for memory must hold none.
                    drop(room.take());
                    self.flush_timer.flush_oldest(wanted);
                    room = Some(self.dirty.reserve(wanted).await);
                }
                WriteStep::TooManyDrafts => file.wait_for_fewer_drafts().await?,
            }
        }
        Ok(())
    }

    /// Like [`Content::write`], but never waits: returns how many of the bytes were taken. Write
    /// the rest with [`Content::write`].
    pub fn write_now(&self, ino: Ino, off: u64, bytes: &[u8]) -> Result<usize> {
        check_file_end(off, bytes.len() as u64)?;
        let Some(file) = self.find(ino) else { return Ok(0) };
        let mut done = 0;
        while done < bytes.len() {
            match file.take(off + done as u64, &bytes[done..], &mut None)? {
                WriteStep::Bytes(count) => done += count,
                WriteStep::NeedsMemory(_) | WriteStep::TooManyDrafts => break,
            }
        }
        Ok(done)
    }

    /// Stores and commits everything written to the file before.
    pub async fn flush(&self, ino: Ino) -> Result<()> {
        match self.find(ino) {
            Some(file) => file.flush().await,
            None => Ok(()),
        }
    }

    /// Returns when everything stored survives a crash of this machine.
    pub async fn sync_staged(&self) -> Result<()> {
        self.store.sync_staged().await
    }

    /// Like [`Content::flush`], if nothing is left to store.
    pub fn flush_now(&self, ino: Ino) -> Option<Result<()>> {
        match self.find(ino) {
            Some(file) => file.flush_now(),
            None => Some(Ok(())),
        }
    }

    /// Returns the length of a file that is open or dirty, including data that is not stored yet.
    pub fn length(&self, ino: Ino) -> Option<u64> {
        self.find(ino).map(|file| file.length())
    }

    /// Returns the attr of a file, including data that is not stored yet.
    pub async fn attr(&self, ino: Ino) -> Result<Attr> {
        let Some(file) = self.find(ino) else { return self.meta.getattr(ino).await };
        let version = file.length_version();
        let attr = self.meta.getattr(ino).await?;
        Ok(file.merge_attr(attr, version))
    }

    /// Returns the attrs of many nodes, including data that is not stored yet; `None` for a node
    /// that is missing.
    pub async fn attrs(&self, inos: &[Ino]) -> Result<Vec<Option<Attr>>> {
        let known: Vec<_> = inos
            .iter()
            .map(|ino| self.find(*ino).map(|file| (file.length_version(), file)))
            .collect();
        let attrs = self.meta.attrs(inos).await?;
        let shown = known.into_iter().zip(attrs).map(|(known, attr)| match (known, attr) {
            (Some((version, file)), Some(attr)) => Some(file.merge_attr(attr, version)),
            (_, attr) => attr,
        });
        Ok(shown.collect())
    }

    /// Flushes every file. Tries all of them, then returns the first error.
    pub async fn close(&self) -> Result<()> {
        let files: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        let flushed = join_all(files.iter().map(OpenFile::flush)).await;
        flushed.into_iter().collect()
    }

    pub(super) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
    }

    pub(super) fn block_size(&self) -> u32 {
        self.store.layout().block_size
    }

    /// Returns memory for dirty data: the earlier reservation if it is large enough, or else what
    /// can be reserved now.
    pub(super) fn take_room(&self, wanted: usize, room: &mut Option<Reserved>) -> Option<Reserved> {
        let enough = wanted.min(self.dirty.capacity());
        match room.take() {
            Some(reserved) if reserved.bytes() >= enough => Some(reserved),
            other => {
                drop(other);
                self.dirty.try_reserve(wanted)
            }
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs work to its end even if the caller goes away.
    pub(super) fn complete<T, W>(&self, work: W) -> impl Future<Output = Result<T>> + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        // Spawned at once, so that the caller holds the handle of the work and not the work.
        let task = self.runtime.spawn(work);
        joined("completing an operation", task)
    }

    pub(super) fn find(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        self.lock().get(&ino).and_then(Weak::upgrade)
    }

    /// Returns the file, and creates it from this attr if it is not known.
    fn find_or_create(self: &Arc<Self>, ino: Ino, attr: &Attr) -> Arc<OpenFile> {
        let mut files = self.lock();
        if let Some(file) = files.get(&ino).and_then(Weak::upgrade) {
            return file;
        }
        let file = OpenFile::new(Arc::clone(self), ino, attr);
        files.insert(ino, Arc::downgrade(&file));
        file
    }

    /// Removes the entry of a file that nobody holds any more, unless it was opened again
    /// meanwhile.
    pub(super) fn forget(&self, ino: Ino) {
        let mut files = self.lock();
        if files.get(&ino).is_some_and(|file| file.strong_count() == 0) {
            files.remove(&ino);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Weak<OpenFile>>> {
        self.files.lock()
    }
}

impl Reclaim for Content {
    /// Dirty data is reclaimed after cached blocks: it must be stored before its memory is free.
    fn reclaim(&self, bytes: usize) -> usize {
        self.flush_timer.flush_oldest(bytes)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.flush_timer.stop();
    }
}
