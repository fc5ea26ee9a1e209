//! Open files: the inodes that this client holds open, with cached attrs and chunk views.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::meta::record::{Attr, Slice};
use crate::meta::{Ino, Timestamp};
use crate::sync::{Mutex, MutexGuard};

/// The slices of one chunk laid end to end, as a read sees them.
pub type View = Arc<Vec<Slice>>;

/// A file with more cached views than this drops all of them.
const MAX_VIEWS: usize = 4096;

/// The files that this client has open, and those it closed last. Other clients do not see them.
pub struct OpenFiles {
    files: Mutex<Files>,
    /// How long a cached attr is used without reading it again.
    lifetime: Duration,
    /// Closed files that are remembered; 0 for no limit.
    limit: usize,
}

/// A version of a file's content, as this client counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentVersion(u64);

struct Files {
    by_ino: HashMap<Ino, OpenFile>,
    /// Files without a handle, in the order of closing; the oldest is evicted first.
    closed: LruCache<Ino, ()>,
    versions: u64,
}

struct OpenFile {
    handles: u32,
    attr: Attr,
    /// When the attr was read; none if it is known to be out of date.
    checked: Option<Instant>,
    views: HashMap<u32, View>,
    /// Changes whenever a cached view may have become invalid.
    version: ContentVersion,
    /// No name is left: the file is deleted when the last handle is closed.
    removed: bool,
}

impl OpenFiles {
    pub fn new(lifetime: Duration, limit: usize) -> Self {
        let files = Files { by_ino: HashMap::new(), closed: LruCache::unbounded(), versions: 0 };
        Self { files: Mutex::new(files), lifetime, limit }
    }

    /// Adds a handle. Returns whether the content is unchanged since this client last read the
    /// attr, so that the kernel's page cache is still valid.
    pub fn open(&self, ino: Ino, attr: &Attr) -> bool {
        let mut files = self.lock();
        let version = files.next_version();
        files.closed.pop(&ino);
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.handles += 1;
            return file.refresh(attr, version);
        }
        files.by_ino.insert(
            ino,
            OpenFile {
                handles: 1,
                attr: attr.clone(),
                checked: Some(Instant::now()),
                views: HashMap::new(),
                version,
                removed: false,
            },
        );
        false
    }

    /// Removes a handle; returns whether it was the last one.
    pub fn close(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino) else { return true };
        file.handles = file.handles.saturating_sub(1);
        if file.handles > 0 {
            return false;
        }
        // Reopening an unchanged small file then needs no read of its only chunk.
        file.views.retain(|index, _| *index == 0);
        if !file.removed {
            files.closed.put(ino, ());
            files.evict(self.limit);
        }
        true
    }

    pub fn is_open(&self, ino: Ino) -> bool {
        self.lock().by_ino.get(&ino).is_some_and(|file| file.handles > 0)
    }

    /// Records that the last name of a file is gone; returns false if the file is not open.
    pub fn mark_removed(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino).filter(|file| file.handles > 0) else {
            return false;
        };
        file.removed = true;
        true
    }

    /// Records that a file without names has got one, or has been deleted.
    pub fn clear_removed(&self, ino: Ino) {
        if let Some(file) = self.lock().by_ino.get_mut(&ino) {
            file.removed = false;
        }
    }

    /// Forgets a closed file; returns whether its last name was removed while it was open.
    pub fn take_removed(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let gone = files.by_ino.get(&ino).is_some_and(|file| file.removed && file.handles == 0);
        if gone {
            files.by_ino.remove(&ino);
        }
        gone
    }

    /// The attr of an open file, if it was read recently enough.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        let files = self.lock();
        let file = files.by_ino.get(&ino)?;
        let checked = file.checked?;
        (!self.lifetime.is_zero() && checked.elapsed() <= self.lifetime).then(|| file.attr.clone())
    }

    /// Records an attr that was just read.
    pub fn observe(&self, ino: Ino, attr: &Attr) {
        let mut files = self.lock();
        let version = files.next_version();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.refresh(attr, version);
        }
    }

    /// Records a write by this client that turned `before` into `after`. Only the view of that
    /// chunk becomes invalid, unless another client wrote as well.
    pub fn observe_write(&self, ino: Ino, index: u32, before: &Attr, after: &Attr) {
        let mut files = self.lock();
        let version = files.next_version();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.views.remove(&index);
            file.refresh(before, version);
            file.attr = after.clone();
            file.version = version;
            file.checked = None;
        }
    }

    /// Updates the cached access time if `due` returns true for the cached attr. Returns false if
    /// nothing is cached or nothing is due.
    pub fn touch(&self, ino: Ino, now: Timestamp, due: impl FnOnce(&Attr) -> bool) -> bool {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino) else { return false };
        let is_due = due(&file.attr);
        if is_due {
            file.attr.atime = now;
        }
        is_due
    }

    pub fn view(&self, ino: Ino, index: u32) -> Option<View> {
        let files = self.lock();
        files.by_ino.get(&ino).filter(|file| file.handles > 0)?.views.get(&index).cloned()
    }

    /// The current version of the content, to be taken before a view is read; none if the file is
    /// not open.
    pub fn version(&self, ino: Ino) -> Option<ContentVersion> {
        self.lock().by_ino.get(&ino).filter(|file| file.handles > 0).map(|file| file.version)
    }

    /// Caches a view of an open file, if the content is still at `version`.
    pub fn cache_view(&self, ino: Ino, index: u32, view: View, version: ContentVersion) {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino) else { return };
        if file.handles > 0 && file.version == version {
            if file.views.len() >= MAX_VIEWS {
                file.views.clear();
            }
            file.views.insert(index, view);
        }
    }

    /// Forgets the view of one chunk.
    pub fn drop_view(&self, ino: Ino, index: u32) {
        let mut files = self.lock();
        let version = files.next_version();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.views.remove(&index);
            file.version = version;
        }
    }

    /// Drops everything cached for a file, but not its handles.
    pub fn forget(&self, ino: Ino) {
        let mut files = self.lock();
        let version = files.next_version();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.views.clear();
            file.version = version;
            file.checked = None;
        }
    }

    /// Every inode with an open handle.
    pub fn all(&self) -> Vec<Ino> {
        let files = self.lock();
        files.by_ino.iter().filter(|(_, file)| file.handles > 0).map(|(ino, _)| *ino).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }
}

impl Files {
    fn next_version(&mut self) -> ContentVersion {
        self.versions += 1;
        ContentVersion(self.versions)
    }

    /// Forgets the files closed longest ago, down to `limit`.
    fn evict(&mut self, limit: usize) {
        while limit > 0 && self.closed.len() > limit {
            let Some((ino, ())) = self.closed.pop_lru() else { return };
            self.by_ino.remove(&ino);
        }
    }
}

impl OpenFile {
    /// Replaces the attr; returns whether the content is unchanged.
    fn refresh(&mut self, attr: &Attr, version: ContentVersion) -> bool {
        // The ctime is compared as well, since a program may rewrite a file and restore its mtime.
        let same = self.attr.mtime == attr.mtime
            && self.attr.ctime == attr.ctime
            && self.attr.length == attr.length;
        if !same {
            self.views.clear();
            self.version = version;
        }
        self.attr = attr.clone();
        self.checked = Some(Instant::now());
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::FileKind;

    const FILE: Ino = Ino(7);

    fn attr(second: i64) -> Attr {
        Attr::new(FileKind::File, 0o644, 0, 0, Ino::ROOT, Timestamp::from_secs(second))
    }

    fn view() -> View {
        Arc::new(vec![Slice::hole(0, 1)])
    }

    fn opened() -> OpenFiles {
        let open = OpenFiles::new(Duration::ZERO, 2);
        open.open(FILE, &attr(1));
        open
    }

    fn keep(open: &OpenFiles, index: u32) {
        let version = open.version(FILE).unwrap();
        open.cache_view(FILE, index, view(), version);
    }

    #[test]
    fn a_second_open_of_unchanged_content_keeps_the_cache() {
        let open = OpenFiles::new(Duration::ZERO, 2);
        assert!(!open.open(FILE, &attr(1)));
        assert!(open.open(FILE, &attr(1)));
        assert!(!open.open(FILE, &attr(2)));
    }

    #[test]
    fn content_rewritten_under_an_old_mtime_does_not_keep_the_cache() {
        let open = opened();
        let rewritten = Attr { ctime: Timestamp::from_secs(9), ..attr(1) };
        assert!(!open.open(FILE, &rewritten));
    }

    #[test]
    fn a_closed_file_is_remembered_until_it_is_evicted() {
        let open = opened();
        assert!(open.close(FILE));
        assert!(open.open(FILE, &attr(1)), "remembered");
        open.close(FILE);
        for ino in [8, 9] {
            open.open(Ino(ino), &attr(1));
            open.close(Ino(ino));
        }
        assert!(!open.open(FILE, &attr(1)), "forgotten");
    }

    #[test]
    fn only_the_last_close_counts() {
        let open = opened();
        open.open(FILE, &attr(1));
        assert!(!open.close(FILE));
        assert!(open.is_open(FILE));
        assert!(open.close(FILE));
        assert!(!open.is_open(FILE));
    }

    #[test]
    fn a_removed_file_is_taken_once_at_its_last_close() {
        let open = opened();
        assert!(open.mark_removed(FILE));
        assert!(!open.take_removed(FILE), "still open");
        open.close(FILE);
        assert!(open.take_removed(FILE));
        assert!(!open.take_removed(FILE));
    }

    #[test]
    fn a_removed_file_that_gets_a_name_is_kept_at_its_last_close() {
        let open = opened();
        assert!(open.mark_removed(FILE));
        open.clear_removed(FILE);
        open.close(FILE);
        assert!(!open.take_removed(FILE));
    }

    #[test]
    fn a_file_that_is_not_open_cannot_be_marked_removed() {
        let open = opened();
        open.close(FILE);
        assert!(!open.mark_removed(FILE));
    }

    #[test]
    fn a_view_read_before_a_change_is_not_cached() {
        let open = opened();
        for change in [
            (|open: &OpenFiles| open.drop_view(FILE, 0)) as fn(&OpenFiles),
            |open| open.forget(FILE),
            |open| open.observe(FILE, &attr(5)),
            |open| open.observe_write(FILE, 0, &attr(5), &attr(6)),
        ] {
            let version = open.version(FILE).unwrap();
            change(&open);
            open.cache_view(FILE, 0, view(), version);
            assert!(open.view(FILE, 0).is_none());
        }
    }

    #[test]
    fn a_write_by_this_client_invalidates_only_its_chunk() {
        let open = opened();
        keep(&open, 0);
        keep(&open, 1);
        open.observe_write(FILE, 1, &attr(1), &attr(2));
        assert!(open.view(FILE, 0).is_some());
        assert!(open.view(FILE, 1).is_none());
        open.observe(FILE, &attr(2));
        assert!(open.view(FILE, 0).is_some(), "the new attr is our own doing");
    }

    #[test]
    fn a_write_after_one_by_another_client_invalidates_every_view() {
        let open = opened();
        keep(&open, 0);
        open.observe_write(FILE, 1, &attr(2), &attr(3));
        assert!(open.view(FILE, 0).is_none());
    }

    #[test]
    fn closing_keeps_the_view_of_the_first_chunk_for_the_next_open() {
        let open = opened();
        keep(&open, 0);
        keep(&open, 1);
        open.close(FILE);
        assert!(open.view(FILE, 0).is_none(), "not while it is closed");
        open.open(FILE, &attr(1));
        assert!(open.view(FILE, 0).is_some());
        assert!(open.view(FILE, 1).is_none());
    }

    #[test]
    fn an_attr_is_used_for_its_lifetime_only() {
        let open = OpenFiles::new(Duration::from_mins(1), 2);
        open.open(FILE, &attr(1));
        assert_eq!(open.attr(FILE), Some(attr(1)));
        open.forget(FILE);
        assert_eq!(open.attr(FILE), None);
        open.observe(FILE, &attr(2));
        assert_eq!(open.attr(FILE), Some(attr(2)));
        assert_eq!(opened().attr(FILE), None, "no lifetime, no trust");
    }
}
