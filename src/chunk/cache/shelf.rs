//! The blocks of one volume on one disk: read, kept, removed.
//!
//! Whatever goes wrong with a file is a miss; the disk is judged by it, the reader never is.

use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::area::Area;
use super::disk::{Disk, MAX_WAIT, now};
use super::file::{self, BlockFile, damaged};
use super::health::State;
use super::index::Entry;
use super::layout;
use super::options::Eviction;
use super::pending::Job;
use crate::chunk::BlockKey;

/// Blocks being written to one disk at the same time.
const MAX_WRITERS: usize = 2;

#[derive(Clone)]
pub struct Shelf {
    pub disk: Arc<Disk>,
    pub area: Arc<Area>,
}

/// What is known without asking the disk.
pub enum Known {
    /// Waits to be written.
    Body(Bytes),
    OnDisk,
    /// Nobody has looked yet.
    Perhaps,
    Missing,
}

impl Shelf {
    /// Where a block is, counted as a use of it.
    pub fn locate(&self, block: BlockKey) -> Known {
        let mut books = self.disk.books();
        if let Some(body) = books.pending.find(self.area.id, block) {
            return Known::Body(body.clone());
        }
        match books.ledger.touch(self.area.id, block, now()) {
            Some(_) => Known::OnDisk,
            None if books.ledger.is_complete(self.area.id) => Known::Missing,
            None => Known::Perhaps,
        }
    }

    /// Whether it is known to have a block; not counted as a use.
    pub fn knows(&self, block: BlockKey) -> bool {
        let books = self.disk.books();
        books.pending.find(self.area.id, block).is_some()
            || books.ledger.find(self.area.id, block).is_some()
    }

    /// Reads from the disk, or misses.
    pub async fn read(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        let reading = async {
            let _turn = self.disk.reads.acquire().await.ok()?;
            let shelf = self.clone();
            spawn_blocking(move || shelf.read_blocking(block, &range)).await.ok()?
        };
        // The disk is judged by what it still has to do; the reader goes elsewhere.
        timeout(MAX_WAIT, reading).await.ok()?
    }

    /// Reads if the file is open and the page cache has the bytes.
    pub fn read_now(&self, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let file = self.disk.files.find(self.area.id, block)?;
        file.read_now(range)?.ok()
    }

    /// Takes a block to be written, if the disk can follow.
    pub fn put(&self, block: BlockKey, body: Bytes, limit: usize, runtime: &Handle) {
        let disk = &self.disk;
        let mut books = disk.books();
        if books.pending.find(self.area.id, block).is_some()
            || books.ledger.find(self.area.id, block).is_some()
        {
            return;
        }
        let is_full = disk.is_full()
            || disk.state() == State::Down
            || (disk.eviction == Eviction::None && disk.is_at_limit(&books, block.size));
        if is_full || !books.pending.push(&self.area, block, body, limit) {
            self.area.counters.dropped();
            return;
        }
        if books.pending.wants_writer(MAX_WRITERS) {
            let disk = Arc::clone(disk);
            runtime.spawn_blocking(move || write_pending(&disk));
        }
    }

    /// Removes the files of a block that is off the books. Blocks.
    pub fn remove(&self, block: BlockKey, staged: bool) {
        let _ = self.disk.attempt(|| remove_if_there(&self.area.cached_path(block)));
        if staged {
            let _ = self.disk.attempt(|| remove_if_there(&self.area.staged_path(block)));
        }
        self.disk.files.forget(self.area.id, block);
    }

    /// Takes a block off the books; answers whether it is, or may be, staged.
    pub fn forget(&self, block: BlockKey) -> bool {
        let mut books = self.disk.books();
        books.pending.cancel(self.area.id, block);
        let known = books.ledger.remove(self.area.id, block);
        known.map_or(!books.ledger.is_complete(self.area.id), |entry| entry.staged)
    }

    fn read_blocking(&self, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let read = || self.open(block)?.read(range);
        let staged = self.is_staged(block);
        // A block that is nowhere else is tried whatever the disk is like.
        let outcome = if staged { read() } else { self.disk.attempt(read) };
        outcome.inspect_err(|error| self.handle(block, staged, error)).ok()
    }

    /// The file of a block, open: in its place, or where it is staged.
    fn open(&self, block: BlockKey) -> io::Result<Arc<BlockFile>> {
        if let Some(file) = self.disk.files.find(self.area.id, block) {
            return Ok(file);
        }
        let open = |path: &_| BlockFile::open(path, block.size, self.disk.checksum);
        let file = match open(&self.area.cached_path(block)) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.may_be_staged(block) => {
                open(&self.area.staged_path(block))
            }
            other => other,
        };
        let file = Arc::new(file?);
        if !file.is_plausible() {
            return Err(damaged("cut off"));
        }
        self.disk.files.keep(self.area.id, block, &file);
        Ok(file)
    }

    fn is_staged(&self, block: BlockKey) -> bool {
        self.disk.books().ledger.find(self.area.id, block).is_some_and(|entry| entry.staged)
    }

    fn may_be_staged(&self, block: BlockKey) -> bool {
        let books = self.disk.books();
        let known = books.ledger.find(self.area.id, block);
        known.map_or(!books.ledger.is_complete(self.area.id), |entry| entry.staged)
    }

    /// Takes the consequences of a file that could not be read.
    fn handle(&self, block: BlockKey, staged: bool, error: &io::Error) {
        let key = self.area.layout.key(block);
        let dir = self.area.root().display();
        if error.kind() == ErrorKind::ResourceBusy || is_shortage(error) {
            return;
        }
        if staged {
            // It may be the only copy: left for whoever uploads it, or for a person.
            tracing::error!("cannot read staged block {key} in {dir}: {error}");
            return;
        }
        if error.kind() != ErrorKind::NotFound {
            tracing::warn!("dropped cached block {key} in {dir}: {error}");
            let _ = self.disk.attempt(|| remove_if_there(&self.area.cached_path(block)));
        }
        self.disk.books().ledger.remove(self.area.id, block);
        self.disk.files.forget(self.area.id, block);
    }
}

/// Writes what is pending until nothing is.
pub fn write_pending(disk: &Arc<Disk>) {
    loop {
        let Some(job) = disk.books().pending.next() else { break };
        let written = write_block(disk, &job);
        if written {
            let Job { block, .. } = job;
            let entry = Entry { block, atime: now(), staged: false };
            disk.books().ledger.insert(job.area.id, entry);
        } else {
            job.area.counters.dropped();
        }
        let wanted = disk.books().pending.finish(&job);
        if !wanted && written {
            let shelf = Shelf { disk: Arc::clone(disk), area: Arc::clone(&job.area) };
            let staged = shelf.forget(job.block);
            shelf.remove(job.block, staged);
        }
        if disk.is_over() {
            disk.evict((0, 0));
        }
    }
    disk.idle.notify_waiters();
}

fn write_block(disk: &Disk, job: &Job) -> bool {
    let begun = Instant::now();
    let trailer = layout::trailer(&job.body, disk.checksum, 0);
    let path = job.area.cached_path(job.block);
    let write = || file::write(&path, &[&job.body, &trailer], disk.modes, false);
    match disk.attempt(write) {
        Ok(()) => {
            job.area.counters.written(job.body.len(), begun.elapsed());
            true
        }
        Err(error) => {
            tracing::debug!("cannot cache {}: {error}", path.display());
            if is_full(&error) {
                disk.make_room_now();
            }
            false
        }
    }
}

pub fn remove_if_there(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether this process, and not the file, is the cause.
fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}
