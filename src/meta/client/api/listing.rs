//! Listing a directory as a stream of pages, so that memory stays bounded for large directories.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::engine::{Cursor, InvalidEntry};
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Name};

/// Entries per page; the attrs of a page are read with one request.
const PAGE: usize = 4096;

/// Bytes per name in the table of listed names, including its free slots.
const FINGERPRINT: usize = 20;

#[derive(Debug, Clone)]
pub struct DirEntry {
    pub name: Name,
    pub ino: Ino,
    pub kind: FileKind,
    /// If attrs were requested: none if the node is missing.
    pub attr: Option<Attr>,
}

/// A listing in progress. It is no snapshot: entries that are added or removed meanwhile may or may
/// not be returned, all others are returned exactly once.
pub struct Listing<'a> {
    meta: &'a Meta,
    with_attrs: bool,
    pages: Pages,
}

/// The position of a listing, for callers that keep it between calls.
pub struct Pages {
    dir: Ino,
    cursor: Cursor,
    seen: Seen,
}

impl Meta {
    /// Lists the entries of a directory, without `.` and `..`.
    pub fn list(&self, dir: Ino, with_attrs: bool) -> Listing<'_> {
        Listing { meta: self, with_attrs, pages: self.pages(dir, Cursor::Start) }
    }

    /// The pages of a directory, from its start or from an earlier position.
    pub fn pages(&self, dir: Ino, cursor: Cursor) -> Pages {
        let seen = Seen::new(!self.engine.properties().sorted);
        Pages { dir, cursor, seen }
    }

    /// All entries at once, for small directories and for tests.
    pub async fn entries(&self, dir: Ino, with_attrs: bool) -> Result<Vec<DirEntry>> {
        let mut listing = self.list(dir, with_attrs);
        let mut all = Vec::new();
        while let Some(page) = listing.next().await? {
            all.extend(page);
        }
        Ok(all)
    }

    /// Reads the attrs of many nodes with one request; none for a node that is missing or damaged.
    pub async fn attrs(&self, inos: &[Ino]) -> Result<Vec<Option<Attr>>> {
        let mut attrs = Vec::with_capacity(inos.len());
        let mut parts: Vec<&[Ino]> = inos.chunks(PAGE).rev().collect();
        while let Some(part) = parts.pop() {
            match self.stored_attrs(part).await {
                Ok(read) => attrs.extend(read),
                // One of them is damaged: split the list to read the others.
                Err(error @ Error::Damaged { .. }) => match part {
                    [ino] => {
                        self.damage.attr(*ino, &error);
                        attrs.push(None);
                    }
                    part => {
                        let (one, two) = part.split_at(part.len() / 2);
                        parts.extend([two, one]);
                    }
                },
                Err(error) => return Err(error),
            }
        }
        for (ino, attr) in inos.iter().zip(&attrs) {
            if let Some(attr) = attr {
                self.context.open.observe(*ino, attr);
            }
        }
        Ok(attrs)
    }
}

impl Meta {
    /// Adds the attrs to the entries.
    pub(in crate::meta::client) async fn with_attrs(
        &self,
        mut entries: Vec<DirEntry>,
    ) -> Result<Vec<DirEntry>> {
        let inos: Vec<Ino> = entries.iter().map(|entry| entry.ino).collect();
        for (entry, attr) in entries.iter_mut().zip(self.attrs(&inos).await?) {
            entry.attr = attr;
        }
        if self.engine.properties().entry_needs_node {
            entries.retain(|entry| entry.attr.is_some());
        }
        Ok(entries)
    }
}

impl Listing<'_> {
    /// Returns the next page; `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<DirEntry>>> {
        let Some(entries) = self.pages.next(self.meta).await? else { return Ok(None) };
        Ok(Some(if self.with_attrs { self.meta.with_attrs(entries).await? } else { entries }))
    }
}

impl Pages {
    /// Returns the next page, without attrs; `None` at the end. A page may be empty.
    pub async fn next(&mut self, meta: &Meta) -> Result<Option<Vec<DirEntry>>> {
        self.next_of(meta, PAGE).await
    }

    /// As [`Pages::next`], with at most about `limit` entries.
    pub(in crate::meta::client) async fn next_of(
        &mut self,
        meta: &Meta,
        limit: usize,
    ) -> Result<Option<Vec<DirEntry>>> {
        let Some((entries, odd)) = self.next_stored(meta, limit).await? else { return Ok(None) };
        for entry in odd {
            meta.damage.invalid_entry(self.dir, &entry.name);
        }
        Ok(Some(entries))
    }

    /// As [`Pages::next_of`], and also returns stored records that are no valid entries.
    pub(in crate::meta::client) async fn next_stored(
        &mut self,
        meta: &Meta,
        limit: usize,
    ) -> Result<Option<(Vec<DirEntry>, Vec<InvalidEntry>)>> {
        if self.cursor == Cursor::End {
            return Ok(None);
        }
        let page = meta.engine.list(self.dir, &self.cursor, limit).await?;
        let is_last = page.next == Cursor::End;
        let is_first = self.cursor == Cursor::Start;
        self.cursor = page.next;
        let mut entries: Vec<DirEntry> = page
            .entries
            .into_iter()
            .map(|(name, entry)| DirEntry { name, ino: entry.ino, kind: entry.kind, attr: None })
            .collect();
        if !(is_first && is_last) {
            entries.retain(|entry| self.seen.first_time(&entry.name));
        }
        if meta.context.options.sort_dir {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(Some((entries, page.invalid)))
    }

    pub(in crate::meta::client) fn is_at_end(&self) -> bool {
        self.cursor == Cursor::End
    }

    /// Bytes of memory held between two pages.
    pub fn held(&self) -> usize {
        self.seen.fingerprints.as_ref().map_or(0, |seen| seen.capacity() * FINGERPRINT)
    }

    /// The position of the next page.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }
}

/// The names listed so far, for stores that may return a name twice while they rehash. Keeps
/// 128-bit hashes instead of names: 16 bytes for each of a million entries.
struct Seen {
    fingerprints: Option<HashSet<u128>>,
    hashers: (RandomState, RandomState),
}

impl Seen {
    fn new(needed: bool) -> Self {
        Self {
            fingerprints: needed.then(HashSet::new),
            hashers: (RandomState::new(), RandomState::new()),
        }
    }

    fn first_time(&mut self, name: &Name) -> bool {
        let Some(fingerprints) = &mut self.fingerprints else { return true };
        let high = u128::from(self.hashers.0.hash_one(name.as_bytes()));
        let low = u128::from(self.hashers.1.hash_one(name.as_bytes()));
        fingerprints.insert((high << 64) | low)
    }
}
