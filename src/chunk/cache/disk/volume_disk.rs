//! The blocks of one volume on one disk: reads, writes and removals.
//!
//! A failure with a file is a miss, and counts against the health of the disk.

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

use super::health::HealthState;
use super::volume_dir::VolumeDir;
use super::write_queue::PendingWrite;
use super::{DISK_TIMEOUT, Disk, now};
use crate::chunk::BlockKey;
use crate::chunk::cache::accounting::IndexEntry;
use crate::chunk::cache::block_file::format;
use crate::chunk::cache::block_file::{self, BlockFile, damaged};
use crate::chunk::cache::eviction::Eviction;

/// Blocks written to one disk at the same time.
const MAX_WRITERS: usize = 2;

#[derive(Clone)]
pub struct VolumeDisk {
    pub disk: Arc<Disk>,
    pub dir: Arc<VolumeDir>,
}

/// What is known about a block without accessing the disk.
pub enum Lookup {
    /// Waits to be written.
    Pending(Bytes),
    OnDisk,
    /// No scan has completed yet.
    Unknown,
    Missing,
}

impl VolumeDisk {
    /// Looks up a block and marks it as used.
    pub fn locate(&self, block: BlockKey) -> Lookup {
        let mut state = self.disk.lock_state();
        if let Some(body) = state.write_queue.find(self.dir.id, block) {
            return Lookup::Pending(body.clone());
        }
        match state.accounting.touch(self.dir.id, block, now()) {
            Some(_) => Lookup::OnDisk,
            None if state.accounting.is_complete(self.dir.id) => Lookup::Missing,
            None => Lookup::Unknown,
        }
    }

    /// Whether a block is known to be here. Does not mark it as used.
    pub fn knows(&self, block: BlockKey) -> bool {
        let state = self.disk.lock_state();
        state.write_queue.find(self.dir.id, block).is_some()
            || state.accounting.find(self.dir.id, block).is_some()
    }

    /// Reads from the disk. Returns `None` on a miss.
    pub async fn read(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        let reading = async {
            let _turn = self.disk.reads.acquire().await.ok()?;
            let volume_disk = self.clone();
            spawn_blocking(move || volume_disk.read_blocking(block, &range)).await.ok()?
        };
        // The health of the disk depends on the operation itself; the reader goes elsewhere.
        timeout(DISK_TIMEOUT, reading).await.ok()?
    }

    /// Reads if the file is open and the bytes are in the page cache.
    pub fn read_now(&self, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let file = self.disk.files.find(self.dir.id, block)?;
        file.read_now(range)?.ok()
    }

    /// Queues a block to be written, unless the disk is full or too slow.
    pub fn put(&self, block: BlockKey, body: Bytes, limit: usize, runtime: &Handle) {
        let disk = &self.disk;
        let mut state = disk.lock_state();
        if state.write_queue.find(self.dir.id, block).is_some()
            || state.accounting.find(self.dir.id, block).is_some()
        {
            return;
        }
        let is_full = disk.is_full()
            || disk.health_state() == HealthState::Down
            || (disk.eviction == Eviction::None && disk.is_at_limit(&state, block.size));
        if is_full || !state.write_queue.push(&self.dir, block, body, limit) {
            self.dir.counters.dropped();
            return;
        }
        if state.write_queue.wants_writer(MAX_WRITERS) {
            let disk = Arc::clone(disk);
            runtime.spawn_blocking(move || write_pending(&disk));
        }
    }

    /// Removes the files of a block that is no longer in the accounting. Blocking.
    pub fn remove(&self, block: BlockKey, staged: bool) {
        let _ = self.disk.attempt(|| remove_if_there(&self.dir.cached_path(block)));
        if staged {
            let _ = self.disk.attempt(|| remove_if_there(&self.dir.staged_path(block)));
        }
        self.disk.files.forget(self.dir.id, block);
    }

    /// Removes a block from the accounting. Returns whether it is, or may be, staged.
    pub fn forget(&self, block: BlockKey) -> bool {
        let mut state = self.disk.lock_state();
        state.write_queue.cancel(self.dir.id, block);
        let known = state.accounting.remove(self.dir.id, block);
        known.map_or(!state.accounting.is_complete(self.dir.id), |entry| entry.staged)
    }

    fn read_blocking(&self, block: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let read = || self.open(block)?.read(range);
        let staged = self.is_staged(block);
        // A staged block is nowhere else, so it is read whatever the health of the disk.
        let outcome = if staged { read() } else { self.disk.attempt(read) };
        outcome.inspect_err(|error| self.handle_read_error(block, staged, error)).ok()
    }

    /// Opens the file of a block: the cached one, or else the staged one.
    fn open(&self, block: BlockKey) -> io::Result<Arc<BlockFile>> {
        if let Some(file) = self.disk.files.find(self.dir.id, block) {
            return Ok(file);
        }
        let open = |path: &_| BlockFile::open(path, block.size, self.disk.checksum);
        let file = match open(&self.dir.cached_path(block)) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.may_be_staged(block) => {
                open(&self.dir.staged_path(block))
            }
            other => other,
        };
        let file = Arc::new(file?);
        if !file.is_plausible() {
            return Err(damaged("truncated"));
        }
        self.disk.files.keep(self.dir.id, block, &file);
        Ok(file)
    }

    fn is_staged(&self, block: BlockKey) -> bool {
        self.disk.lock_state().accounting.find(self.dir.id, block).is_some_and(|entry| entry.staged)
    }

    fn may_be_staged(&self, block: BlockKey) -> bool {
        let state = self.disk.lock_state();
        let known = state.accounting.find(self.dir.id, block);
        known.map_or(!state.accounting.is_complete(self.dir.id), |entry| entry.staged)
    }

    /// Handles a file that could not be read.
    fn handle_read_error(&self, block: BlockKey, staged: bool, error: &io::Error) {
        let key = self.dir.layout.key(block);
        let dir = self.dir.root().display();
        if error.kind() == ErrorKind::ResourceBusy || is_shortage(error) {
            return;
        }
        if staged {
            // It may be the only copy, so it is left for the uploader, or for an operator.
            tracing::error!("cannot read staged block {key} in {dir}: {error}");
            return;
        }
        if error.kind() != ErrorKind::NotFound {
            tracing::warn!("dropping cached block {key} in {dir}: {error}");
            let _ = self.disk.attempt(|| remove_if_there(&self.dir.cached_path(block)));
        }
        self.disk.lock_state().accounting.remove(self.dir.id, block);
        self.disk.files.forget(self.dir.id, block);
    }
}

/// Writes queued blocks until none is left.
pub fn write_pending(disk: &Arc<Disk>) {
    loop {
        let Some(write) = disk.lock_state().write_queue.next() else { break };
        let written = write_block(disk, &write);
        if written {
            let PendingWrite { block, .. } = write;
            let entry = IndexEntry { block, atime: now(), staged: false };
            disk.lock_state().accounting.insert(write.dir.id, entry);
        } else {
            write.dir.counters.dropped();
        }
        let wanted = disk.lock_state().write_queue.finish(&write);
        if !wanted && written {
            let volume_disk = VolumeDisk { disk: Arc::clone(disk), dir: Arc::clone(&write.dir) };
            let staged = volume_disk.forget(write.block);
            volume_disk.remove(write.block, staged);
        }
        disk.evict_to_limit();
    }
    disk.idle.notify_waiters();
}

fn write_block(disk: &Disk, write: &PendingWrite) -> bool {
    let begun = Instant::now();
    let trailer = format::trailer(&write.body, disk.checksum, 0);
    let path = write.dir.cached_path(write.block);
    let attempt = || block_file::write(&path, &[&write.body, &trailer], disk.modes);
    match disk.attempt(attempt) {
        Ok(()) => {
            write.dir.counters.written(write.body.len(), begun.elapsed());
            true
        }
        Err(error) => {
            tracing::debug!("cannot cache {}: {error}", path.display());
            if is_disk_full(&error) {
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

fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether this process lacks resources, and the file is not to blame.
fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}
