//! Scans: every record of one kind in the volume, page by page, for tools that check all of it.

use async_trait::async_trait;

use super::{Cursor, DelayedSlices};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::Slice;

/// A chunk of some file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChunk {
    pub ino: Ino,
    pub index: u32,
    /// `None` if the record cannot be decoded.
    pub slices: Option<Vec<Slice>>,
}

/// Some records, and where the next ones are.
#[derive(Debug, Clone)]
pub struct ScanPage<T> {
    pub records: Vec<T>,
    pub next: Cursor,
}

/// A scan is no snapshot: a record that exists during the whole scan is returned at least once, and
/// one that is added or removed meanwhile may or may not be returned. Only [`Cursor::End`] ends it.
#[async_trait]
pub trait Scans: Send + Sync {
    /// Returns about `limit` chunks of all files, in any order.
    async fn scan_chunks(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<StoredChunk>>;

    /// Returns about `limit` lists of slices that compaction replaced, in any order.
    async fn scan_delayed(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<DelayedSlices>>;
}
