//! An open directory: the position of its listing, and seeking back.
//!
//! Entries are numbered in the order of the listing; the number is the offset that the kernel
//! continues from. Only a window of entries is kept: after a seek to before the window, pages are
//! listed again from the last known cursor before it. The window of a directory that nobody reads
//! is kept only as long as there is memory for it.

mod readdir_prefetch;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::chunk::Reserved;
use crate::error::Error;
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::client::Pages;
use crate::meta::engine::Cursor;
use crate::meta::record::{Attr, FileKind};
use crate::vfs::Vfs;
use crate::vfs::handles::{Fh, Handle};
pub use readdir_prefetch::ListedNode;
use readdir_prefetch::ReaddirPrefetch;

/// Entries kept before the newest page, for short seeks back.
const KEPT_ENTRIES: usize = 4096;

/// Memory that an entry takes beside its name.
const ENTRY_MEMORY: usize = 96;

/// One entry in a listing.
#[derive(Debug, Clone)]
pub struct ListedEntry {
    /// Includes `.` and `..`.
    pub name: Bytes,
    pub ino: Ino,
    pub kind: FileKind,
    /// The offset to continue from after this entry.
    pub next: u64,
}

pub struct Dir {
    ino: Ino,
    listing: tokio::sync::Mutex<Listing>,
    prefetch: ReaddirPrefetch,
}

#[derive(Default)]
struct Listing {
    /// `.`, `..` and the virtual files, which have the first numbers.
    fixed: Vec<(Bytes, Ino, FileKind)>,
    /// `None` before the first page.
    pages: Option<Pages>,
    /// The number of each page's first entry, and the cursor that the page was read from.
    page_starts: Vec<(u64, Cursor)>,
    window: VecDeque<(Bytes, Ino, FileKind)>,
    /// The number of the first entry in the window.
    first: u64,
    /// Memory of the window between two calls.
    room: Option<Reserved>,
}

impl Dir {
    pub fn new(ino: Ino) -> Self {
        Self { ino, listing: tokio::sync::Mutex::default(), prefetch: ReaddirPrefetch::default() }
    }

    pub fn ino(&self) -> Ino {
        self.ino
    }

    pub fn prefetch(&self) -> &ReaddirPrefetch {
        &self.prefetch
    }

    /// Returns the entries from `offset` on, while `fits` accepts them. An empty list is the end.
    pub async fn list(
        &self,
        vfs: &Vfs,
        offset: u64,
        mut fits: impl FnMut(&[u8]) -> bool,
    ) -> Result<Vec<ListedEntry>> {
        let mut listing = self.listing.lock().await;
        if offset == 0 {
            // rewinddir(3) must also see entries created and removed since.
            *listing = Listing::begin(vfs, self.ino).await?;
        } else if listing.pages.is_none() {
            // Another process started this listing.
            *listing = Listing::begin(vfs, self.ino).await?;
        }
        drop(listing.room.take());
        let mut listed = Vec::new();
        let mut number = offset;
        while let Some((name, ino, kind)) = listing.entry(vfs, self.ino, number).await? {
            if !fits(&name) {
                break;
            }
            number += 1;
            listed.push(ListedEntry { name, ino, kind, next: number });
        }
        listing.suspend(vfs, self.ino, listed.is_empty());
        Ok(listed)
    }
}

impl Vfs {
    /// Lists entries of an open directory from `offset` on, while `fits` accepts them.
    pub async fn list(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        fits: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<Vec<ListedEntry>> {
        let handle: Arc<Handle> = self.dir(ino, fh)?;
        match &*handle {
            Handle::Dir(dir) => dir.list(self, offset, fits).await,
            _ => Err(Error::NotDirectory),
        }
    }
}

impl Listing {
    /// Starts a listing with its first page, and reads the parent at the same time.
    async fn begin(vfs: &Vfs, dir: Ino) -> Result<Self> {
        let mut pages = vfs.meta.pages(dir, Cursor::Start);
        let (attr, page) = tokio::join!(vfs.meta.getattr(dir), pages.next(&vfs.meta));
        let (attr, page) = (attr?.into_dir()?, page?);
        let mut listing = Self { fixed: fixed(vfs, dir, &attr), ..Self::default() };
        listing.first = listing.fixed.len() as u64;
        listing.page_starts.push((listing.first, Cursor::Start));
        listing.add(page);
        listing.pages = Some(pages);
        Ok(listing)
    }

    async fn entry(
        &mut self,
        vfs: &Vfs,
        dir: Ino,
        number: u64,
    ) -> Result<Option<(Bytes, Ino, FileKind)>> {
        if let Some(fixed) = usize::try_from(number).ok().and_then(|n| self.fixed.get(n)) {
            return Ok(Some(fixed.clone()));
        }
        if number < self.first {
            self.seek_back(vfs, dir, number);
        }
        loop {
            let position = usize::try_from(number - self.first).unwrap_or(usize::MAX);
            if let Some(entry) = self.window.get(position) {
                return Ok(Some(entry.clone()));
            }
            let Some(pages) = &mut self.pages else { return Ok(None) };
            let cursor = pages.cursor().clone();
            let page = pages.next(&vfs.meta).await?;
            if page.is_none() {
                return Ok(None);
            }
            let behind = self.window.len().saturating_sub(KEPT_ENTRIES);
            self.window.drain(..behind);
            self.first += behind as u64;
            let next = self.first + self.window.len() as u64;
            if self.page_starts.last().is_none_or(|(number, _)| *number < next) {
                self.page_starts.push((next, cursor));
            }
            self.add(page);
        }
    }

    fn seek_back(&mut self, vfs: &Vfs, dir: Ino, number: u64) {
        let page_start = self.page_starts.iter().rev().find(|(first, _)| *first <= number);
        if let Some((first, cursor)) = page_start.cloned() {
            self.first = first;
            self.window.clear();
            self.pages = Some(vfs.meta.pages(dir, cursor));
        }
    }

    /// Keeps the window for the next call, unless there is no memory for it or the listing is over:
    /// then the pages are listed again. With the window goes the record of names already listed, so
    /// a name that the store moves meanwhile may appear twice.
    fn suspend(&mut self, vfs: &Vfs, dir: Ino, is_over: bool) {
        let window: usize = self.window.iter().map(|(name, ..)| name.len() + ENTRY_MEMORY).sum();
        let bytes = window + self.pages.as_ref().map_or(0, Pages::held);
        self.room = if is_over { None } else { vfs.memory.try_reserve(bytes) };
        if self.room.is_none() {
            self.window = VecDeque::new();
            self.first = u64::MAX;
            self.pages = Some(vfs.meta.pages(dir, Cursor::Start));
        }
    }

    fn add(&mut self, page: Option<Vec<crate::meta::DirEntry>>) {
        for entry in page.into_iter().flatten() {
            self.window.push_back((entry.name.into_bytes(), entry.ino, entry.kind));
        }
    }
}

fn fixed(vfs: &Vfs, dir: Ino, attr: &Attr) -> Vec<(Bytes, Ino, FileKind)> {
    let parent = if dir == vfs.root() { dir } else { attr.parent };
    let dots = [(&b"."[..], dir), (b"..", parent)];
    let mut fixed = dots.map(|(name, ino)| (Bytes::from_static(name), ino, FileKind::Dir)).to_vec();
    if dir == vfs.root() && !vfs.options.hide_internal {
        let listed = vfs.virtual_files.listed();
        let listed =
            listed.into_iter().map(|(name, ino, attr)| (name.into_bytes(), ino, attr.kind));
        fixed.extend(listed);
        if let Some(trash) = vfs.virtual_files.trash_name() {
            fixed.push((trash.into_bytes(), Ino::TRASH, FileKind::Dir));
        }
    }
    fixed
}
