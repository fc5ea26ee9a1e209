//! A reader: one handle of a file, and what it reads ahead.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::try_join_all;

use super::content::Content;
use super::file::File;
use super::fragments::{Part, parts, zeros};
use super::streams::{Ahead, Streams};
use crate::chunk::BlockKey;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::View;
use crate::meta::op::zeros::{Piece, pieces};
use crate::slice::SliceId;

/// How often the view of a chunk is read again because its blocks were not there: compaction may
/// replace slices between the look at metadata and the look into the store, but not all the time.
const LOOKS: usize = 3;
/// Who reads here reads the end of the file, where many formats keep their index.
const END: u64 = 32 << 10;
/// With more of the budget in use than this, in percent, nothing more is fetched ahead.
const PRESSED: usize = 80;

/// An open file, as one handle sees it. Dropping it gives the handle back.
pub struct Reader {
    file: Arc<File>,
    streams: Mutex<Streams>,
}

/// Why a part could not be read.
struct Fault {
    slice: SliceId,
    error: Error,
}

impl Reader {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, streams: Mutex::default() }
    }

    pub fn ino(&self) -> Ino {
        self.file.ino
    }

    /// Bytes of the file, in pieces laid end to end; fewer than asked only at its end.
    ///
    /// What this client has written to the range and not stored yet is committed first. Only that:
    /// dirty data elsewhere has no part in these bytes, and what it adds to the length is known.
    pub async fn read(&self, off: u64, len: u32) -> Result<Vec<Bytes>> {
        let range = self.clip(off, len);
        self.file.flush_range(range).await?;
        // The file may be shorter if that took a while.
        let range = self.clip(off, len);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        self.fetch_ahead(&range);
        let pieces: Vec<Piece> = pieces(range).collect();
        let (content, ino) = (&self.file.content, self.file.ino);
        let (mut last, mut looks) = (Vec::new(), 0);
        loop {
            let views = pieces.iter().map(|piece| content.meta.read(ino, piece.index));
            let views = try_join_all(views).await?;
            let parts: Vec<Part> = pieces
                .iter()
                .zip(&views)
                .flat_map(|(piece, view)| parts(view, piece.pos, piece.pos + piece.len))
                .collect();
            let fault = match content.fetch(&parts).await {
                Ok(bytes) => return Ok(bytes),
                Err(fault) => fault,
            };
            looks += 1;
            let missing = matches!(fault.error, Error::MissingBlock { .. });
            if !missing || looks == LOOKS || parts == last {
                return Err(fault.explain(ino));
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

    /// Starts to fetch what is likely to be read next.
    fn fetch_ahead(&self, range: &Range<u64>) {
        let content = &self.file.content;
        let length = self.file.length();
        let ahead = Ahead {
            block: u64::from(content.block_size()),
            max: content.max_readahead,
            pressed: content.budget.used() > content.budget.capacity() / 100 * PRESSED,
        };
        let wanted = {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            streams.read(range, ahead)
        };
        let end = (range.start + END > length).then(|| length.saturating_sub(END)..length);
        for range in wanted.into_iter().chain(end) {
            for piece in pieces(range.start.min(length)..range.end.min(length)) {
                content.prefetch(self.file.ino, piece);
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.file.close();
    }
}

impl Content {
    /// Fetches parts, all at once.
    ///
    /// What is read stays in memory until the last part is there, so reads that hold some of what
    /// they need and wait for the rest could wait for each other. Therefore a read is admitted with
    /// all it may need, and no more are admitted than there is memory for: whoever is admitted gets
    /// its memory, since what dirty data, kept blocks and blocks ahead hold comes back without it.
    async fn fetch(&self, parts: &[Part]) -> Result<Vec<Bytes>, Fault> {
        let needs: Vec<usize> = parts.iter().map(|part| self.need(part)).collect();
        let need = needs.iter().sum();
        if need <= self.reads.capacity() {
            let _admitted = if need > 0 { Some(self.reads.reserve(need).await) } else { None };
            let read = try_join_all(parts.iter().map(|part| self.fetch_part(part))).await?;
            return Ok(read.concat());
        }
        // A few bytes each of very many blocks: one after the other, and of each only those.
        let mut bytes = Vec::with_capacity(parts.len());
        for (part, need) in parts.iter().zip(needs) {
            let _admitted = self.reads.reserve(need).await;
            bytes.push(Bytes::from(self.fetch_part(part).await?.concat()));
        }
        Ok(bytes)
    }

    /// How much memory the blocks of a part take.
    fn need(&self, part: &Part) -> usize {
        part.blocks(self.store.layout()).map(|block| block.size as usize).sum()
    }

    async fn fetch_part(&self, part: &Part) -> Result<Vec<Bytes>, Fault> {
        if part.is_hole() {
            return Ok(zeros(part.len()).collect());
        }
        let fault = |error| Fault { slice: part.slice.id, error };
        let bytes = self.store.read(part.slice, part.range.clone()).await.map_err(fault)?;
        let len: usize = bytes.iter().map(Bytes::len).sum();
        if len != part.len() {
            // A record that reaches past the end of its slice.
            let cause =
                format!("{len} bytes of slice {} where {} are named", part.slice.id, part.len());
            return Err(fault(Error::damaged("chunk", cause)));
        }
        Ok(bytes)
    }

    /// Starts to fetch the blocks of a part of a file.
    fn prefetch(self: &Arc<Self>, ino: Ino, piece: Piece) {
        if let Some(view) = self.meta.facts().open.view(ino, piece.index) {
            return self.prefetch_view(&view, piece);
        }
        let content = Arc::clone(self);
        self.spawn(async move {
            // Whoever reads it for good will be told what is wrong.
            if let Ok(view) = content.meta.read(ino, piece.index).await {
                content.prefetch_view(&view, piece);
            }
        });
    }

    fn prefetch_view(&self, view: &View, piece: Piece) {
        let layout = self.store.layout();
        let mut last: Option<BlockKey> = None;
        for part in parts(view, piece.pos, piece.pos + piece.len) {
            for block in part.blocks(layout) {
                if last.replace(block) != Some(block) {
                    self.store.prefetch(block);
                }
            }
        }
    }
}

impl Fault {
    /// The error with everything that is needed to find out more.
    fn explain(self, ino: Ino) -> Error {
        match self.error {
            Error::MissingBlock { place, key } => {
                let cause = format!("it is not there, but slice {} of inode {ino} is", self.slice);
                Error::Storage { place, action: "read", key, cause }
            }
            other => other,
        }
    }
}
