//! Staged blocks: on disk before they are in the bucket, and safe there.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::disk::now;
use super::file::{self, BlockFile};
use super::health::State;
use super::index::Entry;
use super::layout;
use super::options::Checksum;
use super::shelf::{Shelf, remove_if_there};
use crate::chunk::BlockKey;
use crate::error::{Error, Result};

/// How many blocks are being staged at once, in the whole process.
#[derive(Debug, Default)]
pub struct Staging {
    writing: AtomicUsize,
}

impl Staging {
    /// A place among those, until it is dropped; none if there are `max` already (0: no limit).
    pub fn enter(&self, max: usize) -> Option<impl Drop> {
        let before = self.writing.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        (max == 0 || before < max).then_some(place)
    }
}

struct Place<'a>(&'a Staging);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shelf {
    /// Why a block cannot be staged here now, if so.
    pub fn refuses_staging(&self) -> Option<&'static str> {
        if self.disk.state() != State::Normal {
            return Some("the disk is not trusted");
        }
        self.disk.is_full_for_staging().then_some("the disk is almost full")
    }

    /// Puts a block on the disk so that it survives a crash of the machine. Blocks.
    pub fn stage(&self, block: BlockKey, body: &Bytes, tier: u8) -> Result<()> {
        let (disk, area) = (&self.disk, &self.area);
        let path = area.staged_path(block);
        let trailer = layout::trailer(body, disk.checksum, tier);
        disk.attempt(|| file::write(&path, &[body, &trailer], disk.modes, true))
            .map_err(|error| self.error("stage", block, &error))?;
        area.counters.staged(body.len());
        // On the books first: a scan that finds one name only must not take it for evictable.
        let entry = Entry { block, atime: now(), staged: true };
        disk.books().ledger.insert(area.id, entry);
        // Without the second name it is read where it is staged.
        if let Err(error) = disk.attempt(|| file::link(&path, &area.cached_path(block), disk.modes))
        {
            tracing::debug!("cannot link {}: {error}", path.display());
        }
        disk.files.forget(area.id, block);
        Ok(())
    }

    /// The whole block and its tier, checked if it has checksums. Blocks.
    pub fn read_staged(&self, block: BlockKey) -> Result<(Bytes, u8)> {
        let read = || {
            let path = self.area.staged_path(block);
            let file = BlockFile::open(&path, block.size, Checksum::Full)?;
            let body = file.read(&(0..block.size))?;
            // Data in the wrong tier is better than data that is not uploaded.
            let tier = file.tier().unwrap_or_else(|error| {
                tracing::warn!("{}: {error}: uploaded to the default tier", path.display());
                0
            });
            Ok((body, tier))
        };
        read().map_err(|error: io::Error| match error.kind() {
            ErrorKind::NotFound => Error::NotFound,
            _ => self.error("read staged", block, &error),
        })
    }

    /// Ends the staging of a block that is uploaded; it stays cached. Blocks. False if it was not
    /// staged here.
    pub fn unstage(&self, block: BlockKey) -> bool {
        let (staged, cached) = (self.area.staged_path(block), self.area.cached_path(block));
        let outcome =
            if cached.exists() { fs::remove_file(&staged) } else { fs::rename(&staged, &cached) };
        let cached = match outcome {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            // It is uploaded: better not cached than uploaded once more.
            Err(_) => {
                let _ = remove_if_there(&staged);
                false
            }
        };
        let mut books = self.disk.books();
        let known = books.ledger.find(self.area.id, block);
        if let Some(entry) = known.filter(|entry| entry.staged) {
            books.ledger.insert(self.area.id, Entry { staged: false, ..entry });
        }
        drop(books);
        // It may be open where it was staged.
        self.disk.files.forget(self.area.id, block);
        if self.disk.is_over() {
            self.disk.evict((0, 0));
        }
        cached || known.is_some()
    }

    fn error(&self, action: &'static str, block: BlockKey, cause: &io::Error) -> Error {
        Error::Storage {
            place: self.area.root().display().to_string(),
            action,
            key: self.area.layout.key(block),
            cause: cause.to_string(),
        }
    }
}
