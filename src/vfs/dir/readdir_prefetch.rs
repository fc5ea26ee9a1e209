//! Reads the attributes for the next page of a directory listing in advance, while the kernel
//! processes the current page.
//!
//! The kernel treats every attribute in a reply as fresh. Prefetched attributes are therefore used
//! only if this client has changed nothing since and does not have the file open, and their age is
//! subtracted from the lifetime that the kernel is given.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::chunk::Reserved;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::Attr;
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::Vfs;
use crate::vfs::dir::{Dir, ListedEntry};
use crate::vfs::handles::{Fh, Handle};

/// Memory that one prefetched attribute takes.
const ATTR_MEMORY: usize = 192;

/// The prefetched attributes of one open directory.
#[derive(Default)]
pub struct ReaddirPrefetch {
    reading: Mutex<Option<JoinHandle<Option<PrefetchedPage>>>>,
    /// An earlier prefetch went unused, and another would too: this client keeps changing things.
    is_useless: AtomicBool,
}

struct PrefetchedPage {
    begun: Instant,
    /// The client's change counter when reading began.
    changes: u64,
    attrs: HashMap<Ino, Attr>,
    _room: Reserved,
}

/// A directory entry with the attributes of its node, if it still exists, and the age of these.
#[derive(Debug, Clone)]
pub struct ListedNode {
    pub listed: ListedEntry,
    pub attr: Option<Attr>,
    pub age: Duration,
}

impl ReaddirPrefetch {
    /// Waits for the prefetch under way and takes its page.
    async fn take(&self) -> Option<PrefetchedPage> {
        let reading = self.lock().take()?;
        reading.await.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<Option<PrefetchedPage>>>> {
        self.reading.lock()
    }
}

impl PrefetchedPage {
    fn is_valid(&self, vfs: &Vfs) -> bool {
        self.changes == vfs.meta.commit_count() && self.begun.elapsed() < vfs.options.attr_lifetime
    }

    fn get(&self, vfs: &Vfs, ino: Ino) -> Option<&Attr> {
        // An open file may be longer here than in metadata.
        self.attrs.get(&ino).filter(|_| vfs.content.length(ino).is_none())
    }
}

impl Vfs {
    /// Lists entries of an open directory with attributes, from `offset` on, while `fits` accepts
    /// them.
    pub async fn list_nodes(
        self: &Arc<Self>,
        ino: Ino,
        fh: Fh,
        offset: u64,
        mut fits: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<Vec<ListedNode>> {
        let handle = self.dir(ino, fh)?;
        let Handle::Dir(dir) = &*handle else { return Err(Error::NotDirectory) };
        // After rewinddir(3) a prefetched page is older than the listing.
        let page = dir.prefetch().take().await.filter(|_| offset != 0);
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
            dir.prefetch().is_useless.store(true, Ordering::Relaxed);
        }
        if let Some(last) = listed.last().filter(|_| is_full) {
            self.start_prefetch(&handle, dir, last.next, listed.len());
        }
        Ok(nodes)
    }

    async fn with_attrs(
        &self,
        listed: &[ListedEntry],
        page: Option<PrefetchedPage>,
    ) -> Result<Vec<ListedNode>> {
        let is_dots = |one: &ListedEntry| matches!(&one.name[..], b"." | b"..");
        let read = async |page: Option<&PrefetchedPage>| {
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
        if let Some(page) = page.filter(|page| page.is_valid(self)) {
            let nodes = read(Some(&page)).await?;
            // Nothing may have changed while the missing attributes were read, either.
            if page.is_valid(self) {
                return Ok(nodes);
            }
        }
        read(None).await
    }

    fn start_prefetch(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        dir: &Dir,
        offset: u64,
        count: usize,
    ) {
        let prefetch = dir.prefetch();
        if self.options.attr_lifetime.is_zero() || prefetch.is_useless.load(Ordering::Relaxed) {
            return;
        }
        // Held until the page is taken, or the directory is closed.
        let Some(room) = self.memory.try_reserve(count * ATTR_MEMORY) else { return };
        let (vfs, handle) = (Arc::clone(self), Arc::clone(handle));
        let reading = tokio::spawn(async move {
            let Handle::Dir(dir) = &*handle else { return None };
            let mut left = count;
            let fits = |_: &[u8]| left.checked_sub(1).map(|less| left = less).is_some();
            // Errors are dropped here: listing the page itself reports them.
            let listed = dir.list(&vfs, offset, fits).await.ok()?;
            let (begun, changes) = (Instant::now(), vfs.meta.commit_count());
            let stored = listed.iter().map(|one| one.ino).filter(|ino| !vfs.is_virtual(*ino));
            let inos: Vec<Ino> = stored.collect();
            let attrs = vfs.meta.attrs(&inos).await.ok()?;
            let attrs = inos.into_iter().zip(attrs);
            let attrs = attrs.filter_map(|(ino, attr)| Some((ino, attr?))).collect();
            Some(PrefetchedPage { begun, changes, attrs, _room: room })
        });
        *prefetch.lock() = Some(reading);
    }
}
