//! Content: opening and closing files, and what their chunks hold.

use std::sync::Arc;

use nix::fcntl::{FallocateFlags, OFlag};
use tracing::warn;

use super::{Caller, Meta, View};
use crate::error::{Error, Result};
use crate::meta::op::atime::Touch;
use crate::meta::op::clone::PLAIN_CHUNKS;
use crate::meta::op::copy::{Copied, Copy};
use crate::meta::op::fallocate::Fallocate;
use crate::meta::op::open::{Open, writes};
use crate::meta::op::read::Read;
use crate::meta::op::truncate::{Present, Ranged, Truncate};
use crate::meta::op::write::Write;
use crate::meta::record::chunk::CHUNK_BITS;
use crate::meta::record::visible_slices;
use crate::meta::record::{Attr, CHUNK_SIZE, Slice};
use crate::meta::{Ino, Operation, Timestamp};

/// How often the chunks of a file may change under a change over a wide range.
const MAX_LOOKS: usize = 50;
/// One copy goes no further than this; its caller asks again for the rest.
const MAX_COPY: u64 = 1024 << CHUNK_BITS;

/// An open file.
#[derive(Debug, Clone)]
pub struct Opened {
    pub attr: Attr,
    /// The content is as it was when this client last looked: what is cached of it is good.
    pub keep_cache: bool,
}

impl Meta {
    /// Opens a file that exists. Each open is matched by one [`Meta::close_file`].
    pub async fn open_file(&self, caller: &Caller, ino: Ino, flags: OFlag) -> Result<Opened> {
        if writes(flags) || flags.intersects(OFlag::O_TRUNC | OFlag::O_APPEND) {
            self.refuse_writes()?;
        }
        let known = self.facts.open.attr(ino);
        let attr = self.run(&Open { caller, ino, flags, known }).await?;
        let keep_cache = self.facts.open.open(ino, &attr);
        self.accessed(ino, None);
        Ok(Opened { attr, keep_cache })
    }

    /// Gives a handle back. With the last one, a file whose names are gone goes too.
    pub async fn close_file(&self, ino: Ino) -> Result<()> {
        if self.give_back(ino) { self.drop_removed(ino).await } else { Ok(()) }
    }

    /// Gives a handle back. True if it was the last one of a file whose names are gone: then
    /// [`Meta::drop_removed`] must follow.
    #[must_use]
    pub fn give_back(&self, ino: Ino) -> bool {
        self.facts.open.close(ino) && self.facts.open.take_removed(ino)
    }

    /// Removes a file without names, now that nobody holds it open any more.
    pub async fn drop_removed(&self, ino: Ino) -> Result<()> {
        self.drop_sustained(self.facts.sid(), ino).await.map(drop)
    }

    /// What a chunk holds. Bytes that no slice covers, and those past the file's length, are zeros.
    pub async fn read(&self, ino: Ino, index: u32) -> Result<View> {
        if let Some(view) = self.facts.open.view(ino, index) {
            self.accessed(ino, None);
            return Ok(view);
        }
        // Taken before the chunk is read: what changes from now on makes the view worthless.
        let mark = self.facts.open.mark(ino);
        let chunk = self.run(&Read { ino, index }).await?;
        let view: View = Arc::new(visible_slices(&chunk.records));
        if let Some(mark) = mark {
            self.facts.open.keep_view(ino, index, Arc::clone(&view), mark);
        }
        self.compact_after_read(ino, index, &chunk.records, view.len());
        self.accessed(ino, chunk.attr.as_ref());
        Ok(view)
    }

    /// Which chunks of a file of that length may hold something, in order: all of a short one, those
    /// that there are of a long one.
    pub async fn chunk_indexes(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        let count = length.div_ceil(CHUNK_SIZE);
        match u32::try_from(count) {
            Ok(count) if u64::from(count) <= PLAIN_CHUNKS => Ok((0..count).collect()),
            _ => self.engine.chunk_indexes(ino, length).await,
        }
    }

    /// Forgets what is known of a chunk: its slices turned out not to be there any more.
    pub fn forget_view(&self, ino: Ino, index: u32) {
        self.facts.open.drop_view(ino, index);
    }

    /// Makes an uploaded slice part of a chunk, at `off` in it. `mtime` is when its last byte was
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
        match self.run_counted(&Write { ino, index, slice, mtime }).await {
            Ok(done) => {
                let (before, after) = (&done.output.before, &done.output.after);
                self.facts.open.wrote(ino, index, before, after);
                let records = done.receipts.first().copied().unwrap_or(0);
                let records = usize::try_from(records).unwrap_or(0);
                self.compact_after_write(ino, index, records).await;
                Ok(())
            }
            Err(error) => {
                // It may have taken effect.
                self.facts.open.forget(ino);
                Err(error)
            }
        }
    }

    /// Changes the length of a file by its inode.
    pub async fn truncate(&self, caller: &Caller, ino: Ino, length: u64) -> Result<Attr> {
        self.resize(caller, ino, length, false).await
    }

    /// Changes the length of a file through a handle that is open for writing: what could refuse it
    /// has been asked when it was opened.
    pub async fn truncate_open(&self, caller: &Caller, ino: Ino, length: u64) -> Result<Attr> {
        self.resize(caller, ino, length, true).await
    }

    /// Reserves, punches or zeroes a range. Answers the attr afterwards.
    pub async fn fallocate(
        &self,
        caller: &Caller,
        ino: Ino,
        mode: FallocateFlags,
        off: u64,
        size: u64,
    ) -> Result<Attr> {
        let mut present = None;
        for _ in 0..MAX_LOOKS {
            let op = Fallocate { caller, ino, mode, off, size, chunks: present.as_ref() };
            match self.run(&op).await? {
                Ranged::Done(attr) => return Ok(attr),
                Ranged::Wide(attr) => present = Some(self.present(ino, attr, 0).await?),
            }
        }
        Err(Error::Contended(Fallocate::NAME))
    }

    /// Copies a range by sharing its slices. May copy less than asked; nothing past the end of the
    /// source. Two ranges of one file must not overlap.
    pub async fn copy_file_range(
        &self,
        (from, from_off): (Ino, u64),
        (to, to_off): (Ino, u64),
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
        for _ in 0..MAX_LOOKS {
            let chunks = present.as_ref();
            let op = Truncate { caller, ino, length, by_handle, chunks };
            match self.run(&op).await? {
                Ranged::Done(attr) => return Ok(attr),
                Ranged::Wide(attr) => present = Some(self.present(ino, attr, length).await?),
            }
        }
        Err(Error::Contended(Truncate::NAME))
    }

    /// Which chunks there are in a file that is like this.
    async fn present(&self, ino: Ino, attr: Attr, length: u64) -> Result<Present> {
        let indexes = self.engine.chunk_indexes(ino, attr.length.max(length)).await?;
        Ok(Present { attr, indexes })
    }

    /// Takes note of an access. Its time is written in the background, if that is due at all.
    fn accessed(&self, ino: Ino, seen: Option<&Attr>) {
        let options = &self.facts.options;
        let (mode, now) = (options.atime, Timestamp::now());
        let is_due = |node: &Attr| mode.is_due(node, now);
        if options.read_only || mode == super::AtimeMode::Never {
            return;
        }
        let known = self.facts.open.touch(ino, now, is_due);
        if known || (!self.facts.open.is_open(ino) && seen.is_some_and(is_due)) {
            self.work(async move |meta| match meta.run(&Touch { ino }).await {
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => warn!(ino = ino.0, %error, "cannot write an access time"),
            });
        }
    }
}
