//! Listing a directory: a stream of pages that stays cheap however many entries there are.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::engine::{Cursor, Key, Record};
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Name};

/// Entries asked for at once; attrs of a page come in one request.
const PAGE: usize = 4096;

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
    dir: Ino,
    with_attrs: bool,
    cursor: Cursor,
    seen: Seen,
}

impl Meta {
    /// Lists the entries of a directory, without `.` and `..`.
    pub fn list(&self, dir: Ino, with_attrs: bool) -> Listing<'_> {
        self.list_from(dir, with_attrs, Cursor::Start)
    }

    /// Goes on where a listing of the same directory stood.
    pub fn list_from(&self, dir: Ino, with_attrs: bool, cursor: Cursor) -> Listing<'_> {
        let seen = Seen::new(!self.engine.traits().sorted);
        Listing { meta: self, dir: self.real(dir), with_attrs, cursor, seen }
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
}

impl Listing<'_> {
    /// The next page; `None` at the end. Pages may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<DirEntry>>> {
        if self.cursor == Cursor::End {
            return Ok(None);
        }
        let page = self.meta.engine.list(self.dir, &self.cursor, PAGE).await?;
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
        if self.with_attrs {
            self.fill(&mut entries).await?;
        }
        if self.meta.facts.options.sort_dir {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(Some(entries))
    }

    /// Where to go on.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    async fn fill(&self, entries: &mut Vec<DirEntry>) -> Result<()> {
        let keys: Vec<Key> = entries.iter().map(|entry| Key::Attr(entry.ino)).collect();
        for (chunk, entries) in keys.chunks(PAGE).zip(entries.chunks_mut(PAGE)) {
            let records = self.meta.engine.read(chunk).await?;
            for (entry, record) in entries.iter_mut().zip(records) {
                match record {
                    Record::Attr(attr) => entry.attr = attr,
                    other => {
                        return Err(Error::damaged(
                            "attr",
                            format!("the engine answered {other:?}"),
                        ));
                    }
                }
            }
        }
        for entry in entries.iter() {
            if let Some(attr) = &entry.attr {
                self.meta.facts.open.saw(entry.ino, attr);
            }
        }
        if self.meta.engine.traits().entry_needs_node {
            entries.retain(|entry| entry.attr.is_some());
        }
        Ok(())
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
