//! Content: opening and closing files, and reading and changing their chunks.

use std::sync::Arc;

use nix::fcntl::{FallocateFlags, OFlag};
use tracing::warn;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::context::open_files::View;
use crate::meta::op::attrs::atime::Touch;
use crate::meta::op::content::copy::{Copied, Copy};
use crate::meta::op::content::fallocate::Fallocate;
use crate::meta::op::content::open::{Open, writes};
use crate::meta::op::content::read::Read;
use crate::meta::op::content::truncate::{ExistingChunks, RangeOutcome, Truncate};
use crate::meta::op::content::write::Write;
use crate::meta::op::names::clone::PLAIN_CHUNKS;
use crate::meta::record::chunk::CHUNK_BITS;
use crate::meta::record::visible_slices;
use crate::meta::record::{Attr, CHUNK_SIZE, Slice};
use crate::meta::{AtimeMode, Caller, Ino, Operation, Sid, Timestamp};

/// Attempts of a change to a wide range of a file whose chunks keep changing.
const MAX_ATTEMPTS: usize = 50;
/// The most that one call copies; the caller must call again for the rest.
const MAX_COPY: u64 = 1024 << CHUNK_BITS;

/// The result of opening a file.
#[derive(Debug, Clone)]
pub struct Opened {
    pub attr: Attr,
    /// The content is unchanged since this client last read the attr, so the page cache is valid.
    pub keep_cache: bool,
}

impl Meta {
    /// Opens an existing file. Each open must be matched by one [`Meta::close_file`].
    pub async fn open_file(&self, caller: &Caller, ino: Ino, flags: OFlag) -> Result<Opened> {
        if writes(flags) || flags.intersects(OFlag::O_TRUNC | OFlag::O_APPEND) {
            self.check_writable()?;
        }
        let known = self.context.open.attr(ino);
        let attr = self.run(&Open { caller, ino, flags, known }).await?;
        let keep_cache = self.context.open.open(ino, &attr);
        self.note_access(ino, None);
        Ok(Opened { attr, keep_cache })
    }

    /// Opens a file again that another process of this session opened: its permissions and flags
    /// were checked then, and may have changed since.
    pub async fn reopen_file(&self, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino).await?;
        self.adopt_open_file(ino, &attr);
        Ok(attr)
    }

    /// As [`Meta::reopen_file`], with an attr that was just read.
    pub fn adopt_open_file(&self, ino: Ino, attr: &Attr) {
        self.context.open.open(ino, attr);
    }

    /// Takes over the removed files of a resumed session, once its open files are: those that are
    /// open are deleted when they are closed, the others now.
    pub async fn adopt_removed_files(&self) -> Result<()> {
        let sid = self.context.sid();
        if self.context.options.read_only || sid == Sid(0) {
            return Ok(());
        }
        for ino in self.engine.sustained(sid).await? {
            if !self.context.open.mark_removed(ino) {
                self.drop_sustained(sid, ino).await?;
            }
        }
        Ok(())
    }

    /// Releases a handle. With the last one, a file without names is deleted.
    pub async fn close_file(&self, ino: Ino) -> Result<()> {
        if self.release_handle(ino) { self.drop_removed(ino).await } else { Ok(()) }
    }

    /// Releases a handle. Returns true if it was the last one of a file without names: then the
    /// caller must call [`Meta::drop_removed`].
    #[must_use]
    pub fn release_handle(&self, ino: Ino) -> bool {
        self.context.open.close(ino) && self.context.open.take_removed(ino)
    }

    /// Deletes a file without names, after its last handle was closed.
    pub async fn drop_removed(&self, ino: Ino) -> Result<()> {
        self.drop_sustained(self.context.sid(), ino).await.map(drop)
    }

    /// Reads the slices of a chunk. Bytes that no slice covers, and those past the file's length,
    /// are zeros.
    pub async fn read(&self, ino: Ino, index: u32) -> Result<View> {
        if let Some(view) = self.context.open.view(ino, index) {
            self.note_access(ino, None);
            return Ok(view);
        }
        // Taken before the chunk is read: a change from now on makes the view invalid.
        let version = self.context.open.version(ino);
        let chunk = self.run(&Read { ino, index }).await?;
        let view: View = Arc::new(visible_slices(&chunk.records));
        if let Some(version) = version {
            self.context.open.cache_view(ino, index, Arc::clone(&view), version);
        }
        self.compact_after_read(ino, index, &chunk.records, view.len());
        self.note_access(ino, chunk.attr.as_ref());
        Ok(view)
    }

    /// The chunks of a file of this length that may hold data, in order: all chunks of a short
    /// file, the existing ones of a long file.
    pub async fn chunk_indexes(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        let count = length.div_ceil(CHUNK_SIZE);
        match u32::try_from(count) {
            Ok(count) if u64::from(count) <= PLAIN_CHUNKS => Ok((0..count).collect()),
            _ => self.engine.chunk_indexes(ino, length).await,
        }
    }

    /// Drops the cached view of a chunk, because its slices no longer exist.
    pub fn forget_view(&self, ino: Ino, index: u32) {
        self.context.open.drop_view(ino, index);
    }

    /// Adds an uploaded slice to a chunk, at offset `off`. `mtime` is when its last byte was
    /// written.
    pub async fn write(
        &self,
        ino: Ino,
        index: u32,
        off: u32,
        slice: Slice,
        mtime: Timestamp,
    ) -> Result<()> {
        let slice = Slice { pos: off, ..slice };
        match self.run_with_receipts(&Write { ino, index, slice, mtime }).await {
            Ok(done) => {
                let (before, after) = (&done.output.before, &done.output.after);
                self.context.open.observe_write(ino, index, before, after);
                let records = done.receipts.first().copied().unwrap_or(0);
                let records = usize::try_from(records).unwrap_or(0);
                self.compact_after_write(ino, index, records).await;
                Ok(())
            }
            Err(error) => {
                // The write may have taken effect.
                self.context.open.forget(ino);
                Err(error)
            }
        }
    }

    /// Changes the length of a file by its inode.
    pub async fn truncate(&self, caller: &Caller, ino: Ino, length: u64) -> Result<Attr> {
        self.resize(caller, ino, length, false).await
    }

    /// Changes the length of a file through a handle that is open for writing; permissions were
    /// checked when it was opened.
    pub async fn truncate_open(&self, caller: &Caller, ino: Ino, length: u64) -> Result<Attr> {
        self.resize(caller, ino, length, true).await
    }

    /// Allocates, punches or zeroes a range. Returns the new attr.
    pub async fn fallocate(
        &self,
        caller: &Caller,
        ino: Ino,
        mode: FallocateFlags,
        off: u64,
        size: u64,
    ) -> Result<Attr> {
        let mut present = None;
        for _ in 0..MAX_ATTEMPTS {
            let op = Fallocate { caller, ino, mode, off, size, chunks: present.as_ref() };
            match self.run(&op).await? {
                RangeOutcome::Done(attr) => return Ok(attr),
                RangeOutcome::NeedChunks(attr) => {
                    present = Some(self.existing_chunks(ino, attr, 0).await?);
                }
            }
        }
        Err(Error::Contended(Fallocate::NAME))
    }

    /// Copies a range by sharing its slices. May copy less than requested, and nothing past the end
    /// of the source. Two ranges of one file must not overlap.
    pub async fn copy_file_range(
        &self,
        from: Ino,
        from_off: u64,
        to: Ino,
        to_off: u64,
        size: u64,
    ) -> Result<Copied> {
        let size = size.min(MAX_COPY);
        if from == to && from_off.abs_diff(to_off) < size {
            return Err(Error::Invalid);
        }
        self.run(&Copy { from, from_off, to, to_off, size }).await
    }

    async fn resize(
        &self,
        caller: &Caller,
        ino: Ino,
        length: u64,
        by_handle: bool,
    ) -> Result<Attr> {
        let mut present = None;
        for _ in 0..MAX_ATTEMPTS {
            let chunks = present.as_ref();
            let op = Truncate { caller, ino, length, by_handle, chunks };
            match self.run(&op).await? {
                RangeOutcome::Done(attr) => return Ok(attr),
                RangeOutcome::NeedChunks(attr) => {
                    present = Some(self.existing_chunks(ino, attr, length).await?);
                }
            }
        }
        Err(Error::Contended(Truncate::NAME))
    }

    /// Lists the chunks of a file with this attr.
    async fn existing_chunks(&self, ino: Ino, attr: Attr, length: u64) -> Result<ExistingChunks> {
        let indexes = self.engine.chunk_indexes(ino, attr.length.max(length)).await?;
        Ok(ExistingChunks { attr, indexes })
    }

    /// Records an access. The access time is written in the background, if it is due.
    fn note_access(&self, ino: Ino, seen: Option<&Attr>) {
        let options = &self.context.options;
        let (mode, now) = (options.atime, Timestamp::now());
        let is_due = |node: &Attr| mode.is_due(node, now);
        if options.read_only || mode == AtimeMode::Never {
            return;
        }
        let known = self.context.open.touch(ino, now, is_due);
        if known || (!self.context.open.is_open(ino) && seen.is_some_and(is_due)) {
            self.spawn_background(async move |meta| match meta.run(&Touch { ino }).await {
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => warn!(ino = ino.0, %error, "cannot update an access time"),
            });
        }
    }
}
