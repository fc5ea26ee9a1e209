//! Content: all that a mount holds of its files.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures::future::join_all;
use nix::fcntl::OFlag;
use tokio::runtime::Handle;

use super::drain::{Drain, drain};
use super::file::{File, Taken};
use super::reader::Reader;
use crate::chunk::{Budget, Reclaim, Reserved, Store};
use crate::error::{Result, joined};
use crate::meta::chunk_range::check_file_end;
use crate::meta::client::Opened;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Meta};
use crate::sync::{Mutex, MutexGuard};

/// Blocks that are read ahead of a stream at most, unless told otherwise.
const AHEAD: u64 = 8;

/// What can be chosen for a mount's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentOptions {
    /// Bytes that are read ahead of a stream at most; 8 blocks if not given. Never more than dirty data
    /// may take of the budget.
    pub max_readahead: Option<u64>,
    /// Bytes of dirty data that there is room for whatever other mounts of the volume hold.
    pub floor: usize,
}

/// The content of all files of a mount: dirty data by inode, readers by handle.
pub struct Content {
    pub(super) meta: Arc<Meta>,
    pub(super) store: Arc<Store>,
    /// What of the budget is for dirty data.
    dirty: Arc<Budget>,
    pub(super) max_readahead: u64,
    pub(super) drain: Drain,
    files: Mutex<HashMap<Ino, Weak<File>>>,
    /// Writes are taken on threads that are not of the runtime.
    runtime: Handle,
}

impl Content {
    /// Shares the memory of the store. Must be called within the runtime that is to do the work.
    pub fn new(meta: Arc<Meta>, store: Arc<Store>, options: ContentOptions) -> Arc<Self> {
        let budget = Arc::clone(store.budget());
        let block = u64::from(store.layout().block_size);
        let dirty = match options.floor {
            0 => Arc::clone(store.dirty()),
            floor => store.dirty().share(floor, store.dirty().capacity()),
        };
        let max_readahead = options.max_readahead.unwrap_or(AHEAD * block);
        let content = Arc::new(Self {
            max_readahead: max_readahead.min(dirty.capacity() as u64),
            dirty,
            meta,
            store,
            drain: Drain::default(),
            files: Mutex::default(),
            runtime: Handle::current(),
        });
        let keeper: Weak<dyn Reclaim> = Arc::<Self>::downgrade(&content);
        budget.reclaim_from(keeper);
        content.runtime.spawn(drain(Arc::downgrade(&content)));
        content
    }

    /// Opens a file that exists. The reader stands for the handle: its file remembers an error until
    /// the last one of them is dropped.
    pub async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        flags: OFlag,
    ) -> Result<(Opened, Reader)> {
        let known = self.known(ino).map(|file| (file.mark(), file));
        let mut opened = self.meta.open_file(caller, ino, flags).await?;
        let reader = self.reader(ino, &opened.attr);
        if let Some((mark, file)) = known {
            opened.attr = file.saw(opened.attr, mark);
        }
        Ok((opened, reader))
    }

    /// A handle of a file that was made or opened just now, with this attr.
    pub fn reader(self: &Arc<Self>, ino: Ino, attr: &Attr) -> Reader {
        let file = self.file(ino, attr);
        file.open();
        Reader::new(file)
    }

    /// Takes bytes into memory. Waits only if there is no room for them; then the oldest dirty data
    /// goes to the store first.
    ///
    /// If the future is dropped, a first part of the bytes is taken and the rest is not.
    pub async fn write(self: &Arc<Self>, ino: Ino, off: u64, bytes: &[u8]) -> Result<()> {
        check_file_end(off, bytes.len() as u64)?;
        let file = match self.known(ino) {
            Some(file) => file,
            None => self.file(ino, &self.meta.getattr(ino).await?),
        };
        let (mut done, mut room) = (0, None);
        while done < bytes.len() {
            match file.take(off + done as u64, &bytes[done..], &mut room)? {
                Taken::Bytes(count) => done += count,
                Taken::Wants(wanted) => {
                    // Given back first: who waits for memory holds none.
                    drop(room.take());
                    self.drain.press(wanted);
                    room = Some(self.dirty.reserve(wanted).await);
                }
                Taken::Crowded => file.uncrowded().await?,
            }
        }
        Ok(())
    }

    /// As [`Content::write`], but never waits: answers how many of the bytes were taken. The rest is
    /// to be written the other way.
    pub fn write_now(&self, ino: Ino, off: u64, bytes: &[u8]) -> Result<usize> {
        check_file_end(off, bytes.len() as u64)?;
        let Some(file) = self.known(ino) else { return Ok(0) };
        let mut done = 0;
        while done < bytes.len() {
            match file.take(off + done as u64, &bytes[done..], &mut None)? {
                Taken::Bytes(count) => done += count,
                Taken::Wants(_) | Taken::Crowded => break,
            }
        }
        Ok(done)
    }

    /// Everything that was written to the file before is stored and committed.
    pub async fn flush(&self, ino: Ino) -> Result<()> {
        match self.known(ino) {
            Some(file) => file.flush().await,
            None => Ok(()),
        }
    }

    /// As [`Content::flush`], if nothing is left to be stored.
    pub fn flush_now(&self, ino: Ino) -> Option<Result<()>> {
        match self.known(ino) {
            Some(file) => file.flush_now(),
            None => Some(Ok(())),
        }
    }

    /// The length of a file that is open or dirty, with what is not stored yet.
    pub fn length(&self, ino: Ino) -> Option<u64> {
        self.known(ino).map(|file| file.length())
    }

    /// The attr of a file, with what is not stored yet.
    pub async fn attr(&self, ino: Ino) -> Result<Attr> {
        let Some(file) = self.known(ino) else { return self.meta.getattr(ino).await };
        let mark = file.mark();
        let attr = self.meta.getattr(ino).await?;
        Ok(file.saw(attr, mark))
    }

    /// The attrs of many nodes, with what is not stored yet; none for one that is missing.
    pub async fn attrs(&self, inos: &[Ino]) -> Result<Vec<Option<Attr>>> {
        let known: Vec<_> =
            inos.iter().map(|ino| self.known(*ino).map(|file| (file.mark(), file))).collect();
        let attrs = self.meta.attrs(inos).await?;
        let shown = known.into_iter().zip(attrs).map(|(known, attr)| match (known, attr) {
            (Some((mark, file)), Some(attr)) => Some(file.saw(attr, mark)),
            (_, attr) => attr,
        });
        Ok(shown.collect())
    }

    /// Flushes every file; the first error is answered after all have been tried.
    pub async fn close(&self) -> Result<()> {
        let files: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        let flushed = join_all(files.iter().map(File::flush)).await;
        flushed.into_iter().collect()
    }

    pub(super) fn block_size(&self) -> u32 {
        self.store.layout().block_size
    }

    /// Memory for dirty data: what was reserved before, if that is enough, or what can be had now.
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

    /// Runs to its end what must not be left half done, even if the caller goes away.
    pub(super) fn complete<T, W>(&self, work: W) -> impl Future<Output = Result<T>> + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        // At once, so that whoever waits holds the handle of the work and not the work.
        let task = self.runtime.spawn(work);
        joined("completing an operation", task)
    }

    pub(super) fn known(&self, ino: Ino) -> Option<Arc<File>> {
        self.lock().get(&ino).and_then(Weak::upgrade)
    }

    /// The file, if it is not known as it is with this attr.
    fn file(self: &Arc<Self>, ino: Ino, attr: &Attr) -> Arc<File> {
        let mut files = self.lock();
        if let Some(file) = files.get(&ino).and_then(Weak::upgrade) {
            return file;
        }
        let file = File::new(Arc::clone(self), ino, attr);
        files.insert(ino, Arc::downgrade(&file));
        file
    }

    /// Nobody holds the file any more; unless it came back meanwhile, its place goes.
    pub(super) fn forget(&self, ino: Ino) {
        let mut files = self.lock();
        if files.get(&ino).is_some_and(|file| file.strong_count() == 0) {
            files.remove(&ino);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Weak<File>>> {
        self.files.lock()
    }
}

impl Reclaim for Content {
    /// Dirty data is asked for after the blocks that are only kept: it has to be stored before its
    /// memory comes back.
    fn reclaim(&self, bytes: usize) -> usize {
        self.drain.press(bytes)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.drain.end();
    }
}
