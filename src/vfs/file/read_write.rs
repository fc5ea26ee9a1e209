//! Reading and writing through handles, fallocate and `copy_file_range`.

use bytes::Bytes;
use nix::fcntl::{FallocateFlags, OFlag};

use crate::error::{Error, Result};
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino};
use crate::vfs::Vfs;
use crate::vfs::handles::{Fh, Handle};

impl Vfs {
    /// Reads from an open file. Returns consecutive buffers, shorter than asked only at the end of
    /// the file.
    pub async fn read(
        &self,
        ino: Ino,
        fh: Fh,
        flags: OFlag,
        off: u64,
        len: u32,
    ) -> Result<Vec<Bytes>> {
        match &*self.file(ino, fh, flags).await? {
            Handle::File(file) => {
                let parts = file.reader.read(off, len).await?;
                self.bandwidth.0.acquire(parts.iter().map(|part| part.len() as u64).sum()).await;
                Ok(parts)
            }
            Handle::VirtualFile(_, opened) => Ok(vec![opened.read(off, len).await?]),
            Handle::Dir(_) => Err(Error::IsDirectory),
        }
    }

    /// Like [`Vfs::read`], if all of it is in memory.
    pub fn read_now(&self, ino: Ino, fh: Fh, off: u64, len: u32) -> Option<Vec<Bytes>> {
        match &*self.handles.find(fh, ino)? {
            Handle::File(_) if self.bandwidth.0.is_limited() => None,
            Handle::File(file) => file.reader.read_now(off, len),
            _ => None,
        }
    }

    /// Writes all bytes. Waits only if there is no room for them.
    pub async fn write(
        &self,
        ino: Ino,
        fh: Fh,
        flags: OFlag,
        off: u64,
        bytes: &[u8],
    ) -> Result<()> {
        match &*self.file(ino, fh, flags).await? {
            Handle::File(_) => {
                self.bandwidth.1.acquire(bytes.len() as u64).await;
                self.content.write(ino, off, bytes).await
            }
            Handle::VirtualFile(_, opened) => opened.write(off, bytes),
            Handle::Dir(_) => Err(Error::IsDirectory),
        }
    }

    /// Returns where to write bytes that the kernel appends at `off`.
    ///
    /// The kernel appends at the length that it last knew, and does not ask again when a file is
    /// opened. If another client has written since, that is not the end.
    pub fn end_to_append_at(&self, ino: Ino, off: u64) -> u64 {
        match self.content.length(ino) {
            // With a write-back cache, the kernel keeps the length itself.
            Some(end) if end != off && !self.options().writeback_cache => {
                // The kernel has cached the bytes at the wrong offset.
                self.invalidator().invalidate_content(ino);
                end
            }
            _ => off,
        }
    }

    /// Writes as many of the bytes as there is room for now, and returns how many.
    pub fn write_now(&self, ino: Ino, fh: Fh, off: u64, bytes: &[u8]) -> Result<usize> {
        match self.handles.find(fh, ino).as_deref() {
            Some(Handle::File(_)) if !self.bandwidth.1.is_limited() => {
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
        if self.virtual_files.attr(ino).is_some() {
            return Err(Error::NotPermitted);
        }
        let mode = FallocateFlags::from_bits(mode.cast_signed()).ok_or(Error::NotSupported)?;
        self.content.fallocate(caller, ino, mode, off, size).await
    }

    /// Copies a range without moving its bytes. May copy less than asked.
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
        if [from.0, to.0].into_iter().any(|ino| self.virtual_files.attr(ino).is_some()) {
            return Err(Error::NotSupported);
        }
        Ok(self.content.copy_range(from, to, size).await?.bytes)
    }
}
