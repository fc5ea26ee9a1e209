//! Whole volumes: writing all records of one into an empty store, and reading all of them.

use async_trait::async_trait;
use bytes::Bytes;

use super::{Cursor, DeletedFile};
use crate::error::Result;
use crate::meta::record::{
    AclRule, Attr, Counter, DirStat, Entry, Quota, QuotaKey, Slice, SliceSize,
};
use crate::meta::{Ino, Name, Sid};

/// One record with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    Counter(Counter, i64),
    Attr(Ino, Attr),
    Entry(Ino, Name, Entry),
    /// How many entries of `parent` name a hard-linked node. SQL derives it from the entries.
    Parent {
        ino: Ino,
        parent: Ino,
        count: i64,
    },
    /// All records of a chunk. SQL adds a row with one reference for each slice that has none.
    Chunk(Ino, u32, Vec<Slice>),
    /// The real number of references, of a slice that has more or fewer than one.
    SliceRef(SliceSize, i64),
    Symlink(Ino, Bytes),
    Xattr(Ino, Name, Bytes),
    Sustained(Sid, Ino),
    DeletedFile(DeletedFile),
    DirStat(Ino, DirStat),
    Quota(QuotaKey, Quota),
    Acl(u32, AclRule),
}

/// The records that are too many to be read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Attrs, entries, parents, chunks, symlinks and xattrs, in any order.
    Tree,
    /// References of slices that have more or fewer than one.
    SliceRefs,
    DirStats,
}

/// Some records of a part, and where the next ones are.
#[derive(Debug, Default)]
pub struct StoredPage {
    pub records: Vec<Stored>,
    /// Directories that are too large for a page: the caller lists their entries.
    pub large_dirs: Vec<Ino>,
    /// Records that do not decode; they are left out.
    pub damaged: Vec<String>,
    pub next: Cursor,
}

impl StoredPage {
    /// Returns an empty page that ends its part.
    pub fn end() -> Self {
        Self { next: Cursor::End, ..Self::default() }
    }

    /// Adds a record, or the reason why it does not decode.
    pub fn add(&mut self, record: Result<Stored>) {
        match record {
            Ok(record) => self.records.push(record),
            Err(error) => self.damaged.push(error.to_string()),
        }
    }
}

#[async_trait]
pub trait BulkRecords: Send + Sync {
    /// Returns whether the store holds nothing at all, as other clients require before a load.
    async fn is_empty(&self) -> Result<bool>;

    /// Writes records regardless of what is stored. Writing them again changes nothing. Not for a
    /// volume in use: operations do not notice these writes.
    async fn put_stored(&self, records: Vec<Stored>) -> Result<()>;

    /// Writes the setting and removes [`Counter::UnfinishedLoad`], atomically.
    async fn finish_load(&self, setting: &[u8]) -> Result<()>;

    /// Returns some records of a part from `cursor` on. Only [`Cursor::End`] ends the part. On
    /// Redis, a record may come twice if the store changes meanwhile.
    async fn scan_stored(&self, part: Part, cursor: &Cursor) -> Result<StoredPage>;
}
