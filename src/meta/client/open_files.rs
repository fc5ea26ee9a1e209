//! Open files: which inodes this client holds open, and what it knows of them meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::meta::record::{Attr, Slice};
use crate::meta::{Ino, Timestamp};
use crate::sync::{Mutex, MutexGuard};

/// The slices of one chunk laid end to end, as a read sees them.
pub type View = Arc<Vec<Slice>>;

/// A file with more chunks in use than this starts over with its views.
const MAX_VIEWS: usize = 4096;

/// Files open in this client, and the last closed ones. Other clients do not know of them.
pub struct OpenFiles {
    files: Mutex<Files>,
    /// How long an attr is trusted without asking.
    lifetime: Duration,
    /// Closed files that are remembered; 0 = all.
    limit: usize,
}

/// A moment in the life of a file's content, as this client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

struct Files {
    by_ino: HashMap<Ino, OpenFile>,
    /// Those without a handle, the one closed longest ago first to go.
    closed: LruCache<Ino, ()>,
    marks: u64,
}

struct OpenFile {
    handles: u32,
    attr: Attr,
    /// When the attr was read; none if it is known to be out of date.
    checked: Option<Instant>,
    views: HashMap<u32, View>,
    /// Changes whenever a view may have become wrong.
    mark: Mark,
    /// No name is left: the file goes when the last handle is closed.
    removed: bool,
}

impl OpenFiles {
    pub fn new(lifetime: Duration, limit: usize) -> Self {
        let files = Files { by_ino: HashMap::new(), closed: LruCache::unbounded(), marks: 0 };
        Self { files: Mutex::new(files), lifetime, limit }
    }

    /// Counts a handle. Answers whether the content is as it was when this client last looked, so
    /// that what the kernel has cached of it is still good.
    pub fn open(&self, ino: Ino, attr: &Attr) -> bool {
        let mut files = self.lock();
        let mark = files.next_mark();
        files.closed.pop(&ino);
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.handles += 1;
            return file.refresh(attr, mark);
        }
        files.by_ino.insert(
            ino,
            OpenFile {
                handles: 1,
                attr: attr.clone(),
                checked: Some(Instant::now()),
                views: HashMap::new(),
                mark,
                removed: false,
            },
        );
        false
    }

    /// Gives a handle back; true if it was the last one.
    pub fn close(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino) else { return true };
        file.handles = file.handles.saturating_sub(1);
        if file.handles > 0 {
            return false;
        }
        // A small file that is opened again unchanged needs no second look at its chunk.
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

    /// Takes note that the last name of a file is gone; false if it is not open (any more).
    pub fn remove(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino).filter(|file| file.handles > 0) else {
            return false;
        };
        file.removed = true;
        true
    }

    /// Takes note that a file without a name has one now, or is gone.
    pub fn named(&self, ino: Ino) {
        if let Some(file) = self.lock().by_ino.get_mut(&ino) {
            file.removed = false;
        }
    }

    /// Forgets a closed file; true if its last name had gone while it was open.
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

    /// Takes note of an attr just read.
    pub fn saw(&self, ino: Ino, attr: &Attr) {
        let mut files = self.lock();
        let mark = files.next_mark();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.refresh(attr, mark);
        }
    }

    /// Takes note of a write by this client that turned `before` into `after`: only the view of
    /// that chunk is void, unless someone else wrote as well.
    pub fn wrote(&self, ino: Ino, index: u32, before: &Attr, after: &Attr) {
        let mut files = self.lock();
        let mark = files.next_mark();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.views.remove(&index);
            file.refresh(before, mark);
            file.attr = after.clone();
            file.mark = mark;
            file.checked = None;
        }
    }

    /// Moves the known access time if `due` says so of the known attr; false if nothing is known
    /// or nothing is due.
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

    /// The file's present mark, to be taken before a view is read; none if it is not open.
    pub fn mark(&self, ino: Ino) -> Option<Mark> {
        self.lock().by_ino.get(&ino).filter(|file| file.handles > 0).map(|file| file.mark)
    }

    /// Remembers a view of an open file, if nothing has happened to its content since `mark`.
    pub fn keep_view(&self, ino: Ino, index: u32, view: View, mark: Mark) {
        let mut files = self.lock();
        let Some(file) = files.by_ino.get_mut(&ino) else { return };
        if file.handles > 0 && file.mark == mark {
            if file.views.len() >= MAX_VIEWS {
                file.views.clear();
            }
            file.views.insert(index, view);
        }
    }

    /// Forgets the view of one chunk.
    pub fn drop_view(&self, ino: Ino, index: u32) {
        let mut files = self.lock();
        let mark = files.next_mark();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.views.remove(&index);
            file.mark = mark;
        }
    }

    /// Forgets everything but that the file is open.
    pub fn forget(&self, ino: Ino) {
        let mut files = self.lock();
        let mark = files.next_mark();
        if let Some(file) = files.by_ino.get_mut(&ino) {
            file.views.clear();
            file.mark = mark;
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
    fn next_mark(&mut self) -> Mark {
        self.marks += 1;
        Mark(self.marks)
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
    /// True if the content did not change since the last look.
    fn refresh(&mut self, attr: &Attr, mark: Mark) -> bool {
        // The change time as well: whoever rewrites a file may set its old mtime again.
        let same = self.attr.mtime == attr.mtime
            && self.attr.ctime == attr.ctime
            && self.attr.length == attr.length;
        if !same {
            self.views.clear();
            self.mark = mark;
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
        let mark = open.mark(FILE).unwrap();
        open.keep_view(FILE, index, view(), mark);
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
    fn a_closed_file_is_remembered_until_others_need_its_place() {
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
        assert!(open.remove(FILE));
        assert!(!open.take_removed(FILE), "still open");
        open.close(FILE);
        assert!(open.take_removed(FILE));
        assert!(!open.take_removed(FILE));
    }

    #[test]
    fn a_removed_file_that_gets_a_name_stays_at_its_last_close() {
        let open = opened();
        assert!(open.remove(FILE));
        open.named(FILE);
        open.close(FILE);
        assert!(!open.take_removed(FILE));
    }

    #[test]
    fn a_file_that_is_not_open_cannot_be_marked_removed() {
        let open = opened();
        open.close(FILE);
        assert!(!open.remove(FILE));
    }

    #[test]
    fn a_view_read_before_a_change_is_not_kept() {
        let open = opened();
        for change in [
            (|open: &OpenFiles| open.drop_view(FILE, 0)) as fn(&OpenFiles),
            |open| open.forget(FILE),
            |open| open.saw(FILE, &attr(5)),
            |open| open.wrote(FILE, 0, &attr(5), &attr(6)),
        ] {
            let mark = open.mark(FILE).unwrap();
            change(&open);
            open.keep_view(FILE, 0, view(), mark);
            assert!(open.view(FILE, 0).is_none());
        }
    }

    #[test]
    fn an_own_write_voids_only_its_chunk() {
        let open = opened();
        keep(&open, 0);
        keep(&open, 1);
        open.wrote(FILE, 1, &attr(1), &attr(2));
        assert!(open.view(FILE, 0).is_some());
        assert!(open.view(FILE, 1).is_none());
        open.saw(FILE, &attr(2));
        assert!(open.view(FILE, 0).is_some(), "the new attr is our own doing");
    }

    #[test]
    fn an_own_write_upon_a_foreign_one_voids_every_view() {
        let open = opened();
        keep(&open, 0);
        open.wrote(FILE, 1, &attr(2), &attr(3));
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
    fn an_attr_is_trusted_for_its_lifetime_only() {
        let open = OpenFiles::new(Duration::from_mins(1), 2);
        open.open(FILE, &attr(1));
        assert_eq!(open.attr(FILE), Some(attr(1)));
        open.forget(FILE);
        assert_eq!(open.attr(FILE), None);
        open.saw(FILE, &attr(2));
        assert_eq!(open.attr(FILE), Some(attr(2)));
        assert_eq!(opened().attr(FILE), None, "no lifetime, no trust");
    }
}
