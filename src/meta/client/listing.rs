//! Listing a directory: a stream of pages that stays cheap however many entries there are.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::engine::{Cursor, InvalidEntry};
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Name};

/// Entries asked for at once; attrs of a page come in one request.
const PAGE: usize = 4096;

/// What a name that was seen takes, with what its table has free.
const FINGERPRINT: usize = 20;

#[derive(Debug, Clone)]
pub struct DirEntry {
    pub name: Name,
    pub ino: Ino,
    pub kind: FileKind,
    /// With attrs asked for: none if the node is missing.
    pub attr: Option<Attr>,
}

/// A listing in progress. It does not hold a snapshot: entries that come or go meanwhile may or
/// may not be seen, all others are seen exactly once.
pub struct Listing<'a> {
    meta: &'a Meta,
    with_attrs: bool,
    pages: Pages,
}

/// Where a listing stands, for whoever keeps it longer than a call.
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

    /// The pages of a directory from its start or from where a listing of it stood.
    pub fn pages(&self, dir: Ino, cursor: Cursor) -> Pages {
        let seen = Seen::new(!self.engine.properties().sorted);
        Pages { dir, cursor, seen }
    }

    /// All entries at once, for directories known to be small, and for tests.
    pub async fn entries(&self, dir: Ino, with_attrs: bool) -> Result<Vec<DirEntry>> {
        let mut listing = self.list(dir, with_attrs);
        let mut all = Vec::new();
        while let Some(page) = listing.next().await? {
            all.extend(page);
        }
        Ok(all)
    }

    /// Attrs of many nodes in one request; none for one that is missing or damaged.
    pub async fn attrs(&self, inos: &[Ino]) -> Result<Vec<Option<Attr>>> {
        let mut attrs = Vec::with_capacity(inos.len());
        let mut parts: Vec<&[Ino]> = inos.chunks(PAGE).rev().collect();
        while let Some(part) = parts.pop() {
            match self.attrs_now(part).await {
                Ok(read) => attrs.extend(read),
                // One of them is damaged: the others are read without it.
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
                self.facts.open.saw(*ino, attr);
            }
        }
        Ok(attrs)
    }
}

impl Meta {
    /// Entries with their attrs.
    pub(super) async fn with_attrs(&self, mut entries: Vec<DirEntry>) -> Result<Vec<DirEntry>> {
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
    /// The next page; `None` at the end. Pages may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<DirEntry>>> {
        let Some(entries) = self.pages.next(self.meta).await? else { return Ok(None) };
        Ok(Some(if self.with_attrs { self.meta.with_attrs(entries).await? } else { entries }))
    }
}

impl Pages {
    /// The next page, without attrs; `None` at the end. Pages may be empty.
    pub async fn next(&mut self, meta: &Meta) -> Result<Option<Vec<DirEntry>>> {
        self.next_of(meta, PAGE).await
    }

    /// As [`Pages::next`], with about `limit` entries at most.
    pub(super) async fn next_of(
        &mut self,
        meta: &Meta,
        limit: usize,
    ) -> Result<Option<Vec<DirEntry>>> {
        let Some((entries, odd)) = self.next_stored(meta, limit).await? else { return Ok(None) };
        for entry in odd {
            meta.damage.odd_entry(self.dir, &entry.name);
        }
        Ok(Some(entries))
    }

    /// As [`Pages::next_of`], and what is stored among the entries and cannot be one.
    pub(super) async fn next_stored(
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
        if meta.facts.options.sort_dir {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(Some((entries, page.invalid)))
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.cursor == Cursor::End
    }

    /// Bytes that it holds between two pages.
    pub fn held(&self) -> usize {
        self.seen.fingerprints.as_ref().map_or(0, |seen| seen.capacity() * FINGERPRINT)
    }

    /// Where to go on.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }
}

/// Names already listed, where the store may answer one twice while it reorganises itself.
/// 128-bit fingerprints instead of names: 16 bytes for each of a million entries.
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
