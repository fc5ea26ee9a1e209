//! Attrs of directories that this client changes: as it last read them, with its own changes.
//!
//! The kernel discards its copy of a directory's attr whenever it adds or removes an entry, and
//! asks for it again before the next one. It could have kept the attr for its lifetime. So within
//! that time the attr may come from here: it is as good as the kernel's own copy would have been.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::meta::engine::Change;
use crate::meta::record::Attr;
use crate::meta::{Ino, Timestamp};
use crate::sync::{Mutex, MutexGuard};

/// Directories remembered at most, some 200 bytes each.
const LIMIT: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
const STRIPES: usize = 64;

pub struct ChangedDirs {
    known: Mutex<LruCache<Ino, CachedDir>>,
    /// Changes by this client, counted for all directories that share a stripe.
    changes: [AtomicU64; STRIPES],
}

struct CachedDir {
    attr: Attr,
    read: Instant,
    /// Whether this client has changed the directory since it was read.
    has_changed: bool,
}

/// The time at which a read began, and the changes counted by then.
#[derive(Clone, Copy)]
pub struct ReadMark {
    at: Instant,
    changes: u64,
}

impl Default for ChangedDirs {
    fn default() -> Self {
        Self {
            known: Mutex::new(LruCache::new(LIMIT)),
            changes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl ChangedDirs {
    /// Must be taken before the attr is read.
    pub fn mark(&self, dir: Ino) -> ReadMark {
        ReadMark { at: Instant::now(), changes: self.stripe(dir).load(Ordering::Acquire) }
    }

    /// Records an attr that was read, unless this client has changed the directory since `mark`:
    /// the order of the read and the change would be unknown.
    pub fn observe(&self, dir: Ino, attr: &Attr, mark: ReadMark) {
        if !attr.is_dir() {
            return;
        }
        let mut known = self.lock();
        if self.stripe(dir).load(Ordering::Acquire) == mark.changes {
            known.put(dir, CachedDir { attr: attr.clone(), read: mark.at, has_changed: false });
        }
    }

    /// Applies a committed change.
    pub fn apply(&self, change: &Change) {
        match change {
            Change::TouchDir { ino, links: 0, at } => self.touched(*ino, *at),
            // A read may already include the new link count.
            Change::TouchDir { ino, .. } | Change::RemoveAttr(ino) => self.forget(*ino),
            Change::PutAttr(ino, attr) if attr.is_dir() => self.forget(*ino),
            _ => {}
        }
    }

    /// The attr of a directory that this client has changed since it was read, and the age of the
    /// read, if it is younger than `lifetime`.
    pub fn attr_if_changed(&self, dir: Ino, lifetime: Duration) -> Option<(Attr, Duration)> {
        let mut known = self.lock();
        let CachedDir { attr, read, has_changed } = known.get(&dir)?;
        let age = read.elapsed();
        (*has_changed && age < lifetime).then(|| (attr.clone(), age))
    }

    fn touched(&self, dir: Ino, at: Option<Timestamp>) {
        let mut known = self.lock();
        self.stripe(dir).fetch_add(1, Ordering::AcqRel);
        if let Some(dir) = known.get_mut(&dir) {
            dir.attr.touch(0, at);
            dir.has_changed = true;
        }
    }

    fn forget(&self, dir: Ino) {
        let mut known = self.lock();
        self.stripe(dir).fetch_add(1, Ordering::AcqRel);
        known.pop(&dir);
    }

    fn stripe(&self, dir: Ino) -> &AtomicU64 {
        &self.changes[usize::try_from(dir.0 % STRIPES as u64).unwrap_or_default()]
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Ino, CachedDir>> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::FileKind;

    const DIR: Ino = Ino(7);
    const LONG: Duration = Duration::from_hours(1);

    fn attr(sec: i64) -> Attr {
        let time = Timestamp { sec, nsec: 0 };
        Attr::new(FileKind::Dir, 0o755, 0, 0, Ino::ROOT, time)
    }

    fn touch(sec: i64) -> Change {
        Change::TouchDir { ino: DIR, links: 0, at: Some(Timestamp { sec, nsec: 0 }) }
    }

    #[test]
    fn a_changed_directory_is_returned_with_its_changes() {
        let dirs = ChangedDirs::default();
        dirs.observe(DIR, &attr(1), dirs.mark(DIR));
        assert!(dirs.attr_if_changed(DIR, LONG).is_none(), "nothing was changed");
        dirs.apply(&touch(5));
        assert_eq!(dirs.attr_if_changed(DIR, LONG).unwrap().0.mtime.sec, 5);
        assert!(dirs.attr_if_changed(Ino(8), LONG).is_none());
    }

    #[test]
    fn a_cached_attr_expires_when_the_kernel_would_drop_it() {
        let dirs = ChangedDirs::default();
        dirs.observe(DIR, &attr(1), dirs.mark(DIR));
        dirs.apply(&touch(5));
        let (_, age) = dirs.attr_if_changed(DIR, LONG).unwrap();
        assert!(dirs.attr_if_changed(DIR, age).is_none());
        assert!(dirs.attr_if_changed(DIR, Duration::ZERO).is_none());
    }

    #[test]
    fn a_read_overtaken_by_a_change_is_not_cached() {
        let dirs = ChangedDirs::default();
        let mark = dirs.mark(DIR);
        dirs.apply(&touch(5));
        dirs.observe(DIR, &attr(1), mark);
        dirs.apply(&touch(6));
        assert!(dirs.attr_if_changed(DIR, LONG).is_none());
    }

    #[test]
    fn directories_whose_links_or_modes_change_are_dropped() {
        let gone = [
            Change::TouchDir { ino: DIR, links: 1, at: None },
            Change::PutAttr(DIR, attr(2)),
            Change::RemoveAttr(DIR),
        ];
        for change in gone {
            let dirs = ChangedDirs::default();
            dirs.observe(DIR, &attr(1), dirs.mark(DIR));
            dirs.apply(&touch(5));
            dirs.apply(&change);
            assert!(dirs.attr_if_changed(DIR, LONG).is_none(), "{change:?}");
        }
    }
}
