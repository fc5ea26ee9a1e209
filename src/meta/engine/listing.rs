//! Listings: pages of directory entries, and the chunks of files.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

/// Where a listing continues. Each engine chooses its own kind; callers only pass it back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cursor {
    #[default]
    Start,
    /// After this name, valid or not, for stores that keep entries in order.
    After(Bytes),
    /// A scan position, for stores that do not.
    Scan(u64),
    End,
}

/// Some entries of a directory, and where the next ones are.
#[derive(Debug, Clone, Default)]
pub struct EntryPage {
    pub entries: Vec<(Name, Entry)>,
    /// Stored among the entries, but not usable as one.
    pub invalid: Vec<InvalidEntry>,
    pub next: Cursor,
}

/// An entry with an invalid name or a damaged record. All that can be done with it is to remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidEntry {
    pub name: Bytes,
    /// `None` if the record cannot be decoded.
    pub entry: Option<Entry>,
}

impl EntryPage {
    /// Returns an empty page that ends its listing.
    pub fn end() -> Self {
        Self { next: Cursor::End, ..Self::default() }
    }

    /// Adds what a store holds under a name; `None` if its record cannot be decoded.
    pub fn add(&mut self, name: Bytes, entry: Option<Entry>) {
        match (Name::from_bytes(name.clone()), entry) {
            (Ok(name), Some(entry)) => self.entries.push((name, entry)),
            (_, entry) => self.invalid.push(InvalidEntry { name, entry }),
        }
    }
}

#[async_trait]
pub trait Listings: Send + Sync {
    /// Returns about `limit` entries from `cursor` on. A page may hold fewer or some more; only
    /// [`Cursor::End`] ends the listing. An entry that exists during the whole listing is returned
    /// once.
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage>;

    /// Returns the indexes of all chunks of `ino` that have records, ascending. Redis keeps no list
    /// of them: it probes those below `chunks_of(length)` and returns the ones that exist.
    async fn chunk_indexes(&self, ino: Ino, length: u64) -> Result<Vec<u32>>;

    /// Like [`Listings::chunk_indexes`], for many files given with their lengths.
    async fn chunk_indexes_of(&self, files: &[(Ino, u64)]) -> Result<Vec<Vec<u32>>> {
        let mut all = Vec::with_capacity(files.len());
        for (ino, length) in files {
            all.push(self.chunk_indexes(*ino, *length).await?);
        }
        Ok(all)
    }
}
