//! A reader: one handle of a file, and what it reads ahead.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::try_join_all;

use super::content::Content;
use super::file::File;
use super::fragments::{Part, parts, zeros};
use super::streams::{Ahead, Streams};
use crate::chunk::{BlockKey, SliceRange};
use crate::error::{Error, Result};
use crate::meta::chunk_range::{ChunkRange, MAX_FILE_LENGTH, split_at_chunks};
use crate::meta::client::View;
use crate::meta::{AtimeMode, Ino};
use crate::sync::Mutex;

/// How often the view of a chunk is read again because its blocks were not there: compaction may
/// replace slices between the look at metadata and the look into the store, but not all the time.
const LOOKS: usize = 3;
/// Who reads here reads the end of the file, where many formats keep their index.
const END: u64 = 32 << 10;

/// An open file, as one handle sees it. Dropping it gives the handle back.
pub struct Reader {
    file: Arc<File>,
    streams: Mutex<Streams>,
    /// Something could not be fetched ahead since the last read, for want of memory.
    refused: Arc<AtomicBool>,
}

impl Reader {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, streams: Mutex::default(), refused: Arc::default() }
    }

    pub fn ino(&self) -> Ino {
        self.file.ino
    }

    /// Bytes of the file, in pieces laid end to end; fewer than asked only at its end.
    ///
    /// What this client has written to the range and not stored yet is committed first. Only that:
    /// dirty data elsewhere has no part in these bytes, and what it adds to the length is known.
    pub async fn read(&self, off: u64, len: u32) -> Result<Vec<Bytes>> {
        // Not only up to the end that is known: past it there may be something that was given up.
        self.file.flush_range(asked(off, len)).await?;
        let range = self.clip(off, len);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let pieces: Vec<ChunkRange> = split_at_chunks(range.clone()).collect();
        let (content, ino) = (&self.file.content, self.file.ino);
        let (mut last, mut looks) = (Vec::new(), 0);
        loop {
            let views = pieces.iter().map(|piece| content.meta.read(ino, piece.index));
            let views = try_join_all(views).await?;
            if looks == 0 {
                // Now that the views are known, and beside what is fetched for good.
                self.fetch_ahead(&range);
            }
            let parts: Vec<Part> = pieces
                .iter()
                .zip(&views)
                .flat_map(|(piece, view)| parts(view, piece.pos, piece.pos + piece.len))
                .collect();
            let error = match content.fetch(&parts).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            looks += 1;
            let missing = matches!(error, Error::MissingBlock { .. });
            if !missing || looks == LOOKS || parts == last {
                return Err(content.explain(ino, error));
            }
            for piece in &pieces {
                content.meta.forget_view(ino, piece.index);
            }
            last = parts;
        }
    }

    /// The range without what lies past the end.
    fn clip(&self, off: u64, len: u32) -> Range<u64> {
        let length = self.file.length();
        off.min(length)..off.saturating_add(u64::from(len)).min(length)
    }

    /// The same, if nothing has to be waited for.
    pub fn read_now(&self, off: u64, len: u32) -> Option<Vec<Bytes>> {
        let range = self.clip(off, len);
        let content = &self.file.content;
        // Who keeps times of access must go the other way.
        if content.meta.context().options.atime != AtimeMode::Never
            || self.file.is_dirty(&asked(off, len))
        {
            return None;
        }
        let mut all = Vec::new();
        for piece in split_at_chunks(range.clone()) {
            let view = content.meta.context().open.view(self.file.ino, piece.index)?;
            all.extend(parts(&view, piece.pos, piece.pos + piece.len));
        }
        let bytes = content.fetch_now(&all)?;
        self.fetch_ahead(&range);
        Some(bytes)
    }

    /// Starts to fetch what is likely to be read next.
    fn fetch_ahead(&self, range: &Range<u64>) {
        let content = &self.file.content;
        let length = self.file.length();
        let ahead = Ahead {
            block: u64::from(content.block_size()),
            max: content.max_readahead,
            pressed: self.refused.swap(false, Ordering::Relaxed),
        };
        let wanted = {
            let mut streams = self.streams.lock();
            streams.read(range, ahead)
        };
        let end = (range.start + END > length).then(|| length.saturating_sub(END)..length);
        for range in wanted.into_iter().chain(end) {
            for piece in split_at_chunks(range.start.min(length)..range.end.min(length)) {
                self.prefetch(piece);
            }
        }
    }

    /// Starts to fetch the blocks of a part of the file.
    fn prefetch(&self, piece: ChunkRange) {
        let (content, ino) = (Arc::clone(&self.file.content), self.file.ino);
        let refused = Arc::clone(&self.refused);
        let start = move |content: &Arc<Content>, view: &View| {
            if !Ahead::start(content, view, piece) {
                refused.store(true, Ordering::Relaxed);
            }
        };
        if let Some(view) = content.meta.context().open.view(ino, piece.index) {
            return start(&content, &view);
        }
        self.file.content.spawn(async move {
            // Whoever reads it for good will be told what is wrong.
            if let Ok(view) = content.meta.read(ino, piece.index).await {
                start(&content, &view);
            }
        });
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.file.close();
    }
}

impl Content {
    /// Fetches parts, all at once: what is held of a read while the rest waits for memory could
    /// keep it from others for ever.
    async fn fetch(&self, parts: &[Part]) -> Result<Vec<Bytes>> {
        let mut wanted = Vec::with_capacity(parts.len());
        for part in parts.iter().filter(|part| !part.is_hole()) {
            if part.range.end > part.slice.size {
                let Part { slice, range } = part;
                let cause =
                    format!("bytes {range:?} of slice {}, which has {}", slice.id, slice.size);
                return Err(Error::damaged("chunk", cause));
            }
            wanted.push(SliceRange { slice: part.slice, range: part.range.clone() });
        }
        let read =
            if wanted.is_empty() { Vec::new() } else { self.store.read_all(&wanted).await? };
        join(parts, read)
    }

    /// The same, if all of it is in memory.
    fn fetch_now(&self, parts: &[Part]) -> Option<Vec<Bytes>> {
        let mut read = Vec::new();
        for part in parts.iter().filter(|part| !part.is_hole()) {
            read.extend(self.store.read_now(part.slice, part.range.clone())?);
        }
        join(parts, read).ok()
    }

    /// Which slice needs the block that is missing.
    fn explain(&self, ino: Ino, error: Error) -> Error {
        let Error::MissingBlock { place, key } = error else { return error };
        let block = self.store.layout().parse(&key);
        let slice = block.map_or_else(|| "?".to_owned(), |block| block.slice.to_string());
        let cause = format!("it is not there, but slice {slice} of inode {ino} needs it");
        Error::Storage { place, action: "read", key, cause }
    }
}

/// The range as it was asked for, as far as files can reach.
fn asked(off: u64, len: u32) -> Range<u64> {
    off.min(MAX_FILE_LENGTH)..off.saturating_add(u64::from(len)).min(MAX_FILE_LENGTH)
}

/// Lays what was read and the holes end to end.
fn join(parts: &[Part], read: Vec<Bytes>) -> Result<Vec<Bytes>> {
    let mut read = read.into_iter();
    let mut joined = Vec::with_capacity(parts.len());
    for part in parts {
        if part.is_hole() {
            joined.extend(zeros(part.len()));
            continue;
        }
        let mut missing = part.len();
        while missing > 0 {
            let piece = read.next().filter(|piece| piece.len() <= missing).ok_or_else(|| {
                Error::damaged(format!("slice {}", part.slice.id), "another length was read")
            })?;
            missing -= piece.len();
            joined.push(piece);
        }
    }
    Ok(joined)
}

impl Ahead {
    /// Fetches blocks of a part of a file; false if there was no room for some.
    fn start(content: &Arc<Content>, view: &View, piece: ChunkRange) -> bool {
        let layout = content.store.layout();
        let mut last: Option<BlockKey> = None;
        for part in parts(view, piece.pos, piece.pos + piece.len) {
            for block in part.blocks(layout) {
                if last.replace(block) != Some(block) && !content.store.prefetch(block) {
                    return false;
                }
            }
        }
        true
    }
}
