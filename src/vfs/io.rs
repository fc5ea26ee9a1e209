//! Content through handles: reading, writing, and all that changes what a file holds.

use std::sync::Arc;

use bytes::Bytes;
use nix::fcntl::{FallocateFlags, OFlag};

use super::base::Vfs;
use super::dir::Listed;
use super::handles::{Fh, Handle};
use crate::error::{Error, Result};
use crate::meta::record::{Attr, CHUNK_SIZE};
use crate::meta::{Caller, Ino};

/// What lseek(2) looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    Data,
    Hole,
}

impl Vfs {
    /// Bytes from an open file, in pieces laid end to end; fewer than asked only at its end.
    pub async fn read(
        &self,
        ino: Ino,
        (fh, flags): (Fh, OFlag),
        off: u64,
        len: u32,
    ) -> Result<Vec<Bytes>> {
        match &*self.file(ino, fh, flags).await? {
            Handle::File(file) => {
                let parts = file.reader.read(off, len).await?;
                self.pace.0.acquire(parts.iter().map(|part| part.len() as u64).sum()).await;
                Ok(parts)
            }
            Handle::Virtual(_, opened) => Ok(vec![opened.read(off, len).await?]),
            Handle::Dir(_) => Err(Error::IsDirectory),
        }
    }

    /// The same, if all of it is in memory.
    pub fn read_now(&self, ino: Ino, fh: Fh, off: u64, len: u32) -> Option<Vec<Bytes>> {
        match &*self.handles.find(fh, ino)? {
            Handle::File(_) if self.pace.0.is_limited() => None,
            Handle::File(file) => file.reader.read_now(off, len),
            _ => None,
        }
    }

    /// Writes all of the bytes. Waits only if there is no room for them.
    pub async fn write(
        &self,
        ino: Ino,
        (fh, flags): (Fh, OFlag),
        off: u64,
        bytes: &[u8],
    ) -> Result<()> {
        match &*self.file(ino, fh, flags).await? {
            Handle::File(_) => {
                self.pace.1.acquire(bytes.len() as u64).await;
                self.content.write(ino, off, bytes).await
            }
            Handle::Virtual(_, opened) => opened.write(off, bytes),
            Handle::Dir(_) => Err(Error::IsDirectory),
        }
    }

    /// Where bytes go that the kernel appends at `off`.
    ///
    /// It goes by the length that it was told, and asks for no other when a file is opened. If
    /// another client has written since, that is not the end.
    pub fn end_to_append_at(&self, ino: Ino, off: u64) -> u64 {
        match self.content.length(ino) {
            // With a cache of its own to write from, the kernel keeps the length itself.
            Some(end) if end != off && !self.options().writeback_cache => {
                // What it keeps of the file has the bytes in the wrong place.
                self.notices().content_changed(ino);
                end
            }
            _ => off,
        }
    }

    /// Takes as many of the bytes as there is room for now.
    pub fn write_now(&self, ino: Ino, fh: Fh, off: u64, bytes: &[u8]) -> Result<usize> {
        match self.handles.find(fh, ino).as_deref() {
            Some(Handle::File(_)) if !self.pace.1.is_limited() => {
                self.content.write_now(ino, off, bytes)
            }
            _ => Ok(0),
        }
    }

    pub async fn fallocate(
        &self,
        caller: &Caller,
        ino: Ino,
        mode: u32,
        off: u64,
        size: u64,
    ) -> Result<Attr> {
        if self.internal.attr(ino).is_some() {
            return Err(Error::NotPermitted);
        }
        let mode = FallocateFlags::from_bits(mode.cast_signed()).ok_or(Error::NotSupported)?;
        self.content.fallocate(caller, ino, mode, off, size).await
    }

    /// Copies a range without moving its bytes; may copy less than asked.
    pub async fn copy_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        size: u64,
        flags: u64,
    ) -> Result<u64> {
        if flags != 0 {
            return Err(Error::Invalid);
        }
        if [from.0, to.0].into_iter().any(|ino| self.internal.attr(ino).is_some()) {
            return Err(Error::NotSupported);
        }
        Ok(self.content.copy_range(from, to, size).await?.bytes)
    }

    /// Where the next data or hole begins; `None` if there is none before the end of the file.
    pub async fn seek(&self, ino: Ino, off: u64, seek: Seek) -> Result<Option<u64>> {
        if self.internal.attr(ino).is_some() {
            return Err(Error::Invalid);
        }
        // What is not committed is data as well.
        self.content.flush(ino).await?;
        let length = self.content.attr(ino).await?.length;
        if off >= length {
            return Ok(None);
        }
        let chunks = self.meta.chunk_indexes(ino, length).await?;
        let mut at = off;
        while at < length {
            let index = u32::try_from(at / CHUNK_SIZE).map_err(|_| Error::TooLarge)?;
            let start = u64::from(index) * CHUNK_SIZE;
            if chunks.binary_search(&index).is_err() {
                if seek == Seek::Hole {
                    return Ok(Some(at));
                }
                // On to the next chunk that there is.
                let next = chunks.partition_point(|chunk| *chunk < index);
                let Some(next) = chunks.get(next) else { return Ok(None) };
                at = u64::from(*next) * CHUNK_SIZE;
                continue;
            }
            let view = self.meta.read(ino, index).await?;
            let end = (start + CHUNK_SIZE).min(length);
            match super::holes::find(&view, at - start, end - start, seek) {
                Some(found) => return Ok(Some(start + found)),
                None => at = start + CHUNK_SIZE,
            }
        }
        // Behind the last byte there is a hole, of which nothing can be read.
        Ok((seek == Seek::Hole).then_some(length))
    }

    /// Names in an open directory from `offset` on, as long as `fits` takes them.
    pub async fn list(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        fits: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<Vec<Listed>> {
        let handle: Arc<Handle> = self.dir(ino, fh);
        match &*handle {
            Handle::Dir(dir) => dir.list(self, offset, fits).await,
            _ => Err(Error::NotDirectory),
        }
    }
}
