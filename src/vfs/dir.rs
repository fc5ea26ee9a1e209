//! An open directory: where its listing stands, and how it goes back.
//!
//! Entries are numbered in the order they come in; a number is the offset that the kernel goes on
//! with. Only a window of them is kept: who seeks back to before it has the pages listed again from
//! the last known place before that. The window of a directory that nobody reads on is kept only as long
//! as there is memory for it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::ahead::Ahead;
use super::base::Vfs;
use crate::chunk::Reserved;
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::client::Pages;
use crate::meta::engine::Cursor;
use crate::meta::record::{Attr, FileKind};

/// Entries that are kept behind the newest page, for short ways back.
const KEPT: usize = 4096;

/// What an entry takes beside its name.
const ENTRY: usize = 96;

/// One name in a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    /// `.` and `..` among them.
    pub name: Bytes,
    pub ino: Ino,
    pub kind: FileKind,
    /// Where to go on behind it.
    pub next: u64,
}

pub struct Dir {
    ino: Ino,
    walk: tokio::sync::Mutex<Walk>,
    ahead: Ahead,
}

#[derive(Default)]
struct Walk {
    /// `.`, `..` and the virtual files: the first of the numbers.
    fixed: Vec<(Bytes, Ino, FileKind)>,
    /// None before the first page.
    pages: Option<Pages>,
    /// The number of each page's first entry, and the cursor that it came from.
    marks: Vec<(u64, Cursor)>,
    window: VecDeque<(Bytes, Ino, FileKind)>,
    /// The number of the window's first entry.
    first: u64,
    /// What the window lies in, while nobody asks.
    room: Option<Reserved>,
}

impl Dir {
    pub fn new(ino: Ino) -> Self {
        Self { ino, walk: tokio::sync::Mutex::default(), ahead: Ahead::default() }
    }

    pub fn ino(&self) -> Ino {
        self.ino
    }

    pub fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// The entries from `offset` on, as long as `fits` takes them. None means the end.
    pub async fn list(
        &self,
        vfs: &Vfs,
        offset: u64,
        mut fits: impl FnMut(&[u8]) -> bool,
    ) -> Result<Vec<Listed>> {
        let mut walk = self.walk.lock().await;
        if offset == 0 {
            // Also rewinddir(3), which must see what has come and gone.
            *walk = Walk::begin(vfs, self.ino).await?;
        } else if walk.pages.is_none() {
            // Another process began this listing.
            *walk = Walk::begin(vfs, self.ino).await?;
        }
        drop(walk.room.take());
        let mut listed = Vec::new();
        let mut number = offset;
        while let Some((name, ino, kind)) = walk.entry(vfs, self.ino, number).await? {
            if !fits(&name) {
                break;
            }
            number += 1;
            listed.push(Listed { name, ino, kind, next: number });
        }
        walk.rest(vfs, self.ino, listed.is_empty());
        Ok(listed)
    }
}

impl Walk {
    /// With the first page. The parent is asked for at the same time.
    async fn begin(vfs: &Vfs, dir: Ino) -> Result<Self> {
        let mut pages = vfs.meta.pages(dir, Cursor::Start);
        let (attr, page) = tokio::join!(vfs.meta.getattr(dir), pages.next(&vfs.meta));
        let (attr, page) = (attr?.into_dir()?, page?);
        let mut walk = Self { fixed: fixed(vfs, dir, &attr), ..Self::default() };
        walk.first = walk.fixed.len() as u64;
        walk.marks.push((walk.first, Cursor::Start));
        walk.add(page);
        walk.pages = Some(pages);
        Ok(walk)
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
            self.go_back(vfs, dir, number);
        }
        loop {
            let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
            if let Some(entry) = self.window.get(place) {
                return Ok(Some(entry.clone()));
            }
            let Some(pages) = &mut self.pages else { return Ok(None) };
            let cursor = pages.cursor().clone();
            let page = pages.next(&vfs.meta).await?;
            if page.is_none() {
                return Ok(None);
            }
            let behind = self.window.len().saturating_sub(KEPT);
            self.window.drain(..behind);
            self.first += behind as u64;
            let next = self.first + self.window.len() as u64;
            if self.marks.last().is_none_or(|(number, _)| *number < next) {
                self.marks.push((next, cursor));
            }
            self.add(page);
        }
    }

    fn go_back(&mut self, vfs: &Vfs, dir: Ino, number: u64) {
        let mark = self.marks.iter().rev().find(|(first, _)| *first <= number);
        if let Some((first, cursor)) = mark.cloned() {
            self.first = first;
            self.window.clear();
            self.pages = Some(vfs.meta.pages(dir, cursor));
        }
    }

    /// Keeps the window for who goes on, unless there is no memory for it or nothing to go on with: then
    /// it is listed again. What tells that a name came before goes with it: then one that the store moves
    /// meanwhile may come twice.
    fn rest(&mut self, vfs: &Vfs, dir: Ino, is_over: bool) {
        let window: usize = self.window.iter().map(|(name, ..)| name.len() + ENTRY).sum();
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
        let listed = vfs.internal.listed();
        let listed =
            listed.into_iter().map(|(name, ino, attr)| (name.into_bytes(), ino, attr.kind));
        fixed.extend(listed);
        if let Some(trash) = vfs.internal.trash_name() {
            fixed.push((trash.into_bytes(), Ino::TRASH, FileKind::Dir));
        }
    }
    fixed
}
