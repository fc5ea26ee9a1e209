//! Attrs of the next page of a listing, read while the kernel is busy with this one.
//!
//! The kernel takes what it is told for new. So nothing is told from here that this client has
//! changed since it was read, or has open; and its age counts, as if the kernel had had it all along.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::base::Vfs;
use super::dir::{Dir, Listed};
use super::handles::{Fh, Handle};
use crate::chunk::Reserved;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::Attr;
use crate::sync::{Mutex, MutexGuard};

/// What an attr in a page takes.
const EACH: usize = 192;

/// What a directory has read ahead.
#[derive(Default)]
pub struct Ahead {
    reading: Mutex<Option<JoinHandle<Option<Page>>>>,
    /// It was for nothing, and would be again: this client changes things all the time.
    is_vain: AtomicBool,
}

struct Page {
    begun: Instant,
    /// Of this client, so far.
    changes: u64,
    attrs: HashMap<Ino, Attr>,
    _room: Reserved,
}

/// A name in a listing with the attr of its node, if there still is one, and how old that is.
#[derive(Debug, Clone)]
pub struct ListedNode {
    pub listed: Listed,
    pub attr: Option<Attr>,
    pub age: Duration,
}

impl Ahead {
    /// What was read, when it is.
    async fn take(&self) -> Option<Page> {
        let reading = self.lock().take()?;
        reading.await.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<Option<Page>>>> {
        self.reading.lock()
    }
}

impl Page {
    fn is_good(&self, vfs: &Vfs) -> bool {
        self.changes == vfs.meta.commit_count() && self.begun.elapsed() < vfs.options.attr_lifetime
    }

    fn get(&self, vfs: &Vfs, ino: Ino) -> Option<&Attr> {
        // What is open here may be longer than what is stored.
        self.attrs.get(&ino).filter(|_| vfs.content.length(ino).is_none())
    }
}

impl Vfs {
    /// Names in an open directory from `offset` on, as long as `fits` takes them, with attrs.
    pub async fn list_nodes(
        self: &Arc<Self>,
        ino: Ino,
        fh: Fh,
        offset: u64,
        mut fits: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<Vec<ListedNode>> {
        let handle = self.dir(ino, fh);
        let Handle::Dir(dir) = &*handle else { return Err(Error::NotDirectory) };
        // What was read ahead before a rewind is older than the listing.
        let page = dir.ahead().take().await.filter(|_| offset != 0);
        let mut is_full = false;
        let fits = |name: &[u8]| {
            let takes = fits(name);
            is_full |= !takes;
            takes
        };
        let listed = dir.list(self, offset, fits).await?;
        let had_page = page.is_some();
        let nodes = self.with_attrs(&listed, page).await?;
        let is_used = nodes.iter().any(|node| !node.age.is_zero());
        if had_page && !is_used {
            dir.ahead().is_vain.store(true, Ordering::Relaxed);
        }
        if let Some(last) = listed.last().filter(|_| is_full) {
            self.read_ahead(&handle, dir, last.next, listed.len());
        }
        Ok(nodes)
    }

    async fn with_attrs(&self, listed: &[Listed], page: Option<Page>) -> Result<Vec<ListedNode>> {
        let is_dots = |one: &Listed| matches!(&one.name[..], b"." | b"..");
        let read = async |page: Option<&Page>| {
            let known = |ino| page.and_then(|page| page.get(self, ino)).cloned();
            let mut nodes = Vec::with_capacity(listed.len());
            let mut missing = Vec::new();
            for one in listed {
                let attr = if is_dots(one) { None } else { known(one.ino) };
                let age = page.filter(|_| attr.is_some()).map(|page| page.begun.elapsed());
                if attr.is_none() && !is_dots(one) {
                    missing.push(one.ino);
                }
                let age = age.unwrap_or_default();
                nodes.push(ListedNode { listed: one.clone(), attr, age });
            }
            let mut attrs = self.attrs(&missing).await?.into_iter();
            for node in
                nodes.iter_mut().filter(|node| node.attr.is_none() && !is_dots(&node.listed))
            {
                node.attr = attrs.next().flatten();
            }
            Ok(nodes)
        };
        if let Some(page) = page.filter(|page| page.is_good(self)) {
            let nodes = read(Some(&page)).await?;
            // Nothing may have changed while the rest was read, either.
            if page.is_good(self) {
                return Ok(nodes);
            }
        }
        read(None).await
    }

    fn read_ahead(self: &Arc<Self>, handle: &Arc<Handle>, dir: &Dir, offset: u64, count: usize) {
        let ahead = dir.ahead();
        if self.options.attr_lifetime.is_zero() || ahead.is_vain.load(Ordering::Relaxed) {
            return;
        }
        // It is held until it is asked for, if ever.
        let Some(room) = self.memory.try_reserve(count * EACH) else { return };
        let (vfs, handle) = (Arc::clone(self), Arc::clone(handle));
        let reading = tokio::spawn(async move {
            let Handle::Dir(dir) = &*handle else { return None };
            let mut left = count;
            let fits = |_: &[u8]| left.checked_sub(1).map(|less| left = less).is_some();
            // Whoever asks for the page is told what fails.
            let listed = dir.list(&vfs, offset, fits).await.ok()?;
            let (begun, changes) = (Instant::now(), vfs.meta.commit_count());
            let stored = listed.iter().map(|one| one.ino).filter(|ino| !vfs.is_virtual(*ino));
            let inos: Vec<Ino> = stored.collect();
            let attrs = vfs.meta.attrs(&inos).await.ok()?;
            let attrs = inos.into_iter().zip(attrs);
            let attrs = attrs.filter_map(|(ino, attr)| Some((ino, attr?))).collect();
            Some(Page { begun, changes, attrs, _room: room })
        });
        *ahead.lock() = Some(reading);
    }
}
