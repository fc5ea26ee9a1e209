//! Staged blocks: on disk before they are in the bucket.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::health::HealthState;
use super::now;
use super::volume_disk::{VolumeDisk, remove_if_there};
use crate::chunk::BlockKey;
use crate::chunk::cache::accounting::IndexEntry;
use crate::chunk::cache::block_file::format;
use crate::chunk::cache::block_file::{self, BlockFile};
use crate::chunk::cache::options::Checksum;
use crate::error::{Error, Result};

/// Limits concurrent staging in the whole process.
#[derive(Debug, Default)]
pub struct StagingLimit {
    writing: AtomicUsize,
}

impl StagingLimit {
    /// Returns a permit to stage a block, or `None` if `max` are in use. 0 is no limit.
    pub fn enter(&self, max: usize) -> Option<impl Drop> {
        let before = self.writing.fetch_add(1, Ordering::Relaxed);
        let place = StagingPermit(self);
        (max == 0 || before < max).then_some(place)
    }
}

struct StagingPermit<'a>(&'a StagingLimit);

impl Drop for StagingPermit<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl VolumeDisk {
    /// Returns why a block cannot be staged on this disk now.
    pub fn refuses_staging(&self) -> Option<&'static str> {
        if self.disk.health_state() != HealthState::Normal {
            return Some("the disk is failing");
        }
        self.disk.is_full_for_staging().then_some("the disk is almost full")
    }

    /// Writes a block. It survives a crash of the machine only after [`VolumeDisk::sync_staged`].
    /// Blocking.
    pub fn stage(&self, block: BlockKey, body: &Bytes, tier: u8) -> Result<()> {
        let (disk, dir) = (&self.disk, &self.dir);
        let path = dir.staged_path(block);
        let trailer = format::trailer(body, disk.checksum, tier);
        disk.attempt(|| block_file::write(&path, &[body, &trailer], disk.modes))
            .map_err(|error| self.error("stage", block, &error))?;
        dir.counters.staged(body.len());
        // Into the accounting before the second name is made: a scan that finds only one name must
        // not treat the block as evictable.
        let entry = IndexEntry { block, atime: now(), staged: true };
        disk.lock_state().accounting.insert(dir.id, entry);
        // Without the second name, the block is read from the staging directory.
        if let Err(error) =
            disk.attempt(|| block_file::link(&path, &dir.cached_path(block), disk.modes))
        {
            tracing::debug!("cannot link {}: {error}", path.display());
        }
        disk.files.forget(dir.id, block);
        Ok(())
    }

    /// Makes staged blocks survive a crash of the machine. Those that are not staged here are skipped.
    /// Blocking.
    pub fn sync_staged(&self, blocks: &[BlockKey]) -> io::Result<()> {
        let paths = blocks.iter().map(|block| self.dir.staged_path(*block));
        let here: Vec<_> = paths.filter(|path| path.exists()).collect();
        if here.is_empty() {
            return Ok(());
        }
        let root = self.dir.root();
        self.disk.attempt(|| block_file::sync(&here, root.parent().unwrap_or(root)))
    }

    /// Reads a whole block and its tier, and verifies the checksums, if any. Blocking.
    pub fn read_staged(&self, block: BlockKey) -> Result<(Bytes, u8)> {
        let read = || {
            let path = self.dir.staged_path(block);
            let file = BlockFile::open(&path, block.size, Checksum::Full)?;
            let body = file.read(&(0..block.size))?;
            // Data in the wrong tier is better than data that is not uploaded.
            let tier = file.tier().unwrap_or_else(|error| {
                tracing::warn!("{}: {error}: uploading to the default tier", path.display());
                0
            });
            Ok((body, tier))
        };
        read().map_err(|error: io::Error| match error.kind() {
            ErrorKind::NotFound => Error::NotFound,
            _ => self.error("read staged", block, &error),
        })
    }

    /// Ends the staging of a block that is uploaded; it stays cached. Blocking. Returns false if it
    /// was not staged here.
    pub fn unstage(&self, block: BlockKey) -> bool {
        let (staged, cached) = (self.dir.staged_path(block), self.dir.cached_path(block));
        let outcome =
            if cached.exists() { fs::remove_file(&staged) } else { fs::rename(&staged, &cached) };
        let cached = match outcome {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            // The block is uploaded: losing it from the cache is better than uploading it once
            // more.
            Err(_) => {
                let _ = remove_if_there(&staged);
                false
            }
        };
        let mut state = self.disk.lock_state();
        let known = state.accounting.find(self.dir.id, block);
        if let Some(entry) = known.filter(|entry| entry.staged) {
            state.accounting.insert(self.dir.id, IndexEntry { staged: false, ..entry });
        }
        drop(state);
        // It may be open under its staged name.
        self.disk.files.forget(self.dir.id, block);
        self.disk.evict_to_limit();
        cached || known.is_some()
    }

    fn error(&self, action: &'static str, block: BlockKey, cause: &io::Error) -> Error {
        Error::Storage {
            place: self.dir.root().display().to_string(),
            action,
            key: self.dir.layout.key(block),
            cause: cause.to_string(),
        }
    }
}
