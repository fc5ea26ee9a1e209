//! One handle of a file, as it reads, and its readahead.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::future::try_join_all;

use super::content::Content;
use super::open_file::OpenFile;
use super::readahead::{Ahead, ReadEvent, Readahead, ReadaheadLimits};
use super::slice_ranges::{slice_ranges, zeros};
use crate::chunk::{BlockKey, ReadStream, SliceRange, Store};
use crate::error::{Error, Result};
use crate::meta::chunk_range::{ChunkRange, MAX_FILE_LENGTH, split_at_chunks};
use crate::meta::client::View;
use crate::meta::{AtimeMode, Ino};
use crate::sync::Mutex;

/// How often the view of a chunk is read again because blocks were missing: compaction may replace
/// slices between reading metadata and reading the store, but not all the time.
const MAX_ATTEMPTS: usize = 3;
/// A read this close to the end of the file prefetches the rest: many formats have their index
/// there.
const END: u64 = 32 << 10;

/// An open file, as one handle sees it. Dropping it closes the handle.
pub struct Reader {
    file: Arc<OpenFile>,
    readahead: Arc<Mutex<HandleReadahead>>,
}

/// The readahead of one handle.
#[derive(Default)]
struct HandleReadahead {
    readahead: Readahead,
    /// The streams for which something was fetched ahead, by their slot, with their number.
    streams: Vec<Option<(u64, Arc<ReadStream>)>>,
}

impl HandleReadahead {
    /// Returns the stream of a slot, opened if it is new.
    fn stream(&mut self, ahead: &Ahead, store: &Store) -> Arc<ReadStream> {
        if self.streams.len() <= ahead.slot {
            self.streams.resize_with(ahead.slot + 1, || None);
        }
        match &mut self.streams[ahead.slot] {
            Some((number, stream)) if *number == ahead.stream => Arc::clone(stream),
            slot => {
                let stream = Arc::new(store.open_stream());
                *slot = Some((ahead.stream, Arc::clone(&stream)));
                stream
            }
        }
    }

    /// Records a read of a stream for which something was fetched ahead before.
    fn touch(&self, ahead: &Ahead) {
        if let Some(Some((number, stream))) = self.streams.get(ahead.slot)
            && *number == ahead.stream
        {
            stream.touch();
        }
    }
}

impl Reader {
    pub(super) fn new(file: Arc<OpenFile>) -> Self {
        Self { file, readahead: Arc::default() }
    }

    pub fn ino(&self) -> Ino {
        self.file.ino
    }

    /// Reads from the file. Returns consecutive buffers, shorter than asked only at the end of the
    /// file.
    ///
    /// Data that this client has written to the range is committed first. Only that: dirty data
    /// elsewhere does not affect these bytes, and its effect on the length is known.
    pub async fn read(&self, off: u64, len: u32) -> Result<Vec<Bytes>> {
        // The full range, not only up to the known end: data past it may have been given up.
        self.file.flush_range(asked(off, len)).await?;
        let range = self.clip(off, len);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let pieces: Vec<ChunkRange> = split_at_chunks(range.clone()).collect();
        let (content, ino) = (&self.file.content, self.file.ino);
        let (mut last, mut attempts) = (Vec::new(), 0);
        loop {
            let views = pieces.iter().map(|piece| content.meta.read(ino, piece.index));
            let views = try_join_all(views).await?;
            let ranges: Vec<SliceRange> = pieces
                .iter()
                .zip(&views)
                .flat_map(|(piece, view)| slice_ranges(view, piece.pos, piece.pos + piece.len))
                .collect();
            if attempts == 0 {
                // Now that the views are known, and concurrently with the read itself.
                let now = content.fetch_now(&ranges);
                let waited = now.is_none();
                let missing = waited && !content.store.is_fetching(&ranges);
                self.fetch_ahead(&ReadEvent { range: range.clone(), waited, missing });
                if let Some(bytes) = now {
                    return Ok(bytes);
                }
            }
            let error = match content.fetch(&ranges).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            attempts += 1;
            let missing = matches!(error, Error::MissingBlock { .. });
            if !missing || attempts == MAX_ATTEMPTS || ranges == last {
                return Err(content.explain(ino, error));
            }
            for piece in &pieces {
                content.meta.forget_view(ino, piece.index);
            }
            last = ranges;
        }
    }

    /// Returns the range without the part past the end.
    fn clip(&self, off: u64, len: u32) -> Range<u64> {
        let length = self.file.length();
        off.min(length)..off.saturating_add(u64::from(len)).min(length)
    }

    /// Like [`Reader::read`], if nothing has to be waited for.
    pub fn read_now(&self, off: u64, len: u32) -> Option<Vec<Bytes>> {
        let range = self.clip(off, len);
        let content = &self.file.content;
        // Access times are maintained by the other path.
        if content.meta.context().options.atime != AtimeMode::Never
            || self.file.is_dirty(&asked(off, len))
        {
            return None;
        }
        let mut all = Vec::new();
        for piece in split_at_chunks(range.clone()) {
            let view = content.meta.context().open.view(self.file.ino, piece.index)?;
            all.extend(slice_ranges(&view, piece.pos, piece.pos + piece.len));
        }
        let bytes = content.fetch_now(&all)?;
        self.fetch_ahead(&ReadEvent { range, waited: false, missing: false });
        Some(bytes)
    }

    /// Starts to fetch data that is likely to be read next.
    fn fetch_ahead(&self, read: &ReadEvent) {
        let content = &self.file.content;
        let length = self.file.length();
        let limits = content.readahead_limits();
        let (ahead, stream) = {
            let mut handle = self.readahead.lock();
            let mut ahead = handle.readahead.read(read, limits);
            if read.range.start + END > length {
                ahead.ranges.push(length.saturating_sub(END)..length);
            }
            ahead.ranges.retain(|range| range.start < length);
            handle.touch(&ahead);
            if ahead.ranges.is_empty() {
                return;
            }
            let stream = handle.stream(&ahead, &content.store);
            (ahead, stream)
        };
        if let Some(window) = ahead.settled {
            content.usual_window.store(window, Ordering::Relaxed);
        }
        for range in &ahead.ranges {
            for piece in split_at_chunks(range.start..range.end.min(length)) {
                if !self.prefetch(piece, &stream, ahead.stream) {
                    return;
                }
            }
        }
    }

    /// Starts to fetch the blocks of a range of the file. Returns false if there is no room for
    /// some of them.
    fn prefetch(&self, piece: ChunkRange, stream: &Arc<ReadStream>, number: u64) -> bool {
        let (content, ino) = (Arc::clone(&self.file.content), self.file.ino);
        let (readahead, stream) = (Arc::downgrade(&self.readahead), Arc::clone(stream));
        let start = move |content: &Content, view: &View| {
            let Err(at) = content.start_readahead(view, piece, &stream) else { return true };
            if let Some(handle) = readahead.upgrade() {
                handle.lock().readahead.refused(number, &(at..piece.file_range().end));
            }
            false
        };
        if let Some(view) = content.meta.context().open.view(ino, piece.index) {
            return start(&content, &view);
        }
        self.file.content.spawn(async move {
            // Errors are dropped here: reading the range reports them.
            if let Ok(view) = content.meta.read(ino, piece.index).await {
                start(&content, &view);
            }
        });
        true
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.file.close();
    }
}

impl Content {
    /// Fetches ranges, all at once: if a read held some of them while waiting for memory, others
    /// could wait for that memory forever.
    async fn fetch(&self, ranges: &[SliceRange]) -> Result<Vec<Bytes>> {
        let mut wanted = Vec::with_capacity(ranges.len());
        for one in ranges.iter().filter(|one| !one.is_hole()) {
            if one.range.end > one.slice.size {
                let SliceRange { slice, range } = one;
                let cause =
                    format!("bytes {range:?} of slice {}, which has {}", slice.id, slice.size);
                return Err(Error::damaged("chunk", cause));
            }
            wanted.push(one.clone());
        }
        let read =
            if wanted.is_empty() { Vec::new() } else { self.store.read_all(&wanted).await? };
        join(ranges, read)
    }

    /// Like [`Content::fetch`], if all of it is in memory.
    fn fetch_now(&self, ranges: &[SliceRange]) -> Option<Vec<Bytes>> {
        let mut read = Vec::new();
        for one in ranges.iter().filter(|one| !one.is_hole()) {
            read.extend(self.store.read_now(one.slice, one.range.clone())?);
        }
        join(ranges, read).ok()
    }

    /// Names the slice that needs the missing block.
    fn explain(&self, ino: Ino, error: Error) -> Error {
        let Error::MissingBlock { place, key } = error else { return error };
        let block = self.store.layout().parse(&key);
        let slice = block.map_or_else(|| "?".to_owned(), |block| block.slice.to_string());
        let cause = format!("object not found, but slice {slice} of inode {ino} needs it");
        Error::Storage { place, action: "read", key, cause }
    }
}

/// Returns the range as requested, up to the maximum length of a file.
fn asked(off: u64, len: u32) -> Range<u64> {
    off.min(MAX_FILE_LENGTH)..off.saturating_add(u64::from(len)).min(MAX_FILE_LENGTH)
}

/// Joins the data read and the holes.
fn join(ranges: &[SliceRange], read: Vec<Bytes>) -> Result<Vec<Bytes>> {
    let mut read = read.into_iter();
    let mut joined = Vec::with_capacity(ranges.len());
    for one in ranges {
        if one.is_hole() {
            joined.extend(zeros(one.byte_count()));
            continue;
        }
        let mut missing = one.byte_count();
        while missing > 0 {
            let buffer = read.next().filter(|buffer| buffer.len() <= missing).ok_or_else(|| {
                Error::damaged(format!("slice {}", one.slice.id), "unexpected length read")
            })?;
            missing -= buffer.len();
            joined.push(buffer);
        }
    }
    Ok(joined)
}

impl Content {
    fn readahead_limits(&self) -> ReadaheadLimits {
        let block = u64::from(self.block_size());
        let share = self.store.readahead_share() as u64;
        ReadaheadLimits {
            block,
            max: self.max_readahead.min(share),
            usual: self.usual_window.load(Ordering::Relaxed),
        }
    }

    /// Fetches the blocks of a range of a file. If there is no room for one, returns where in the
    /// file it begins.
    fn start_readahead(
        &self,
        view: &View,
        piece: ChunkRange,
        stream: &ReadStream,
    ) -> Result<(), u64> {
        let layout = self.store.layout();
        let mut last: Option<BlockKey> = None;
        let mut at = piece.file_range().start;
        for one in slice_ranges(view, piece.pos, piece.pos + piece.len) {
            let mut from = at;
            for part in one.block_ranges(layout) {
                let block = part.block;
                if last.replace(block) != Some(block) && !self.store.prefetch(block, stream) {
                    return Err(from);
                }
                from += u64::from(part.range.end - part.range.start);
            }
            at += one.byte_count() as u64;
        }
        Ok(())
    }
}
