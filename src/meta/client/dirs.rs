//! Directories that this client changes, as it knows them: what it read last, with its own changes.
//!
//! The kernel drops what it knows of a directory whenever an entry is made or removed in it, and asks
//! again before the next one. It could have kept the attr for its lifetime, so until that is over the
//! answer may come from here, and is as good as the kernel's own would have been.

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

pub struct Dirs {
    known: Mutex<LruCache<Ino, Known>>,
    /// Own changes so far, of directories that share a stripe.
    changes: [AtomicU64; STRIPES],
}

struct Known {
    attr: Attr,
    read: Instant,
    /// By this client, since it was read.
    has_changed: bool,
}

/// When a read began, and what had been changed by then.
#[derive(Clone, Copy)]
pub struct Mark {
    at: Instant,
    changes: u64,
}

impl Default for Dirs {
    fn default() -> Self {
        Self {
            known: Mutex::new(LruCache::new(LIMIT)),
            changes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Dirs {
    /// To be taken before an attr is read.
    pub fn mark(&self, dir: Ino) -> Mark {
        Mark { at: Instant::now(), changes: self.stripe(dir).load(Ordering::Acquire) }
    }

    /// Takes note of an attr that was read, unless something has been changed meanwhile: nobody knows
    /// which of both came first.
    pub fn saw(&self, dir: Ino, attr: &Attr, mark: Mark) {
        if !attr.is_dir() {
            return;
        }
        let mut known = self.lock();
        if self.stripe(dir).load(Ordering::Acquire) == mark.changes {
            known.put(dir, Known { attr: attr.clone(), read: mark.at, has_changed: false });
        }
    }

    /// Takes note of a change that was committed.
    pub fn changed(&self, change: &Change) {
        match change {
            Change::TouchDir { ino, links: 0, at } => self.touched(*ino, *at),
            // A read may have counted the link already.
            Change::TouchDir { ino, .. } | Change::RemoveAttr(ino) => self.forget(*ino),
            Change::PutAttr(ino, attr) if attr.is_dir() => self.forget(*ino),
            _ => {}
        }
    }

    /// The attr of a directory that has been changed here after it was read, and how long ago that
    /// was; only if it is not as long ago as `lifetime`.
    pub fn changed_here(&self, dir: Ino, lifetime: Duration) -> Option<(Attr, Duration)> {
        let mut known = self.lock();
        let Known { attr, read, has_changed } = known.get(&dir)?;
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

    fn lock(&self) -> MutexGuard<'_, LruCache<Ino, Known>> {
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
    fn a_directory_is_answered_with_what_was_changed_in_it() {
        let dirs = Dirs::default();
        dirs.saw(DIR, &attr(1), dirs.mark(DIR));
        assert!(dirs.changed_here(DIR, LONG).is_none(), "nothing was changed");
        dirs.changed(&touch(5));
        assert_eq!(dirs.changed_here(DIR, LONG).unwrap().0.mtime.sec, 5);
        assert!(dirs.changed_here(Ino(8), LONG).is_none());
    }

    #[test]
    fn an_answer_lives_no_longer_than_the_kernel_would_keep_it() {
        let dirs = Dirs::default();
        dirs.saw(DIR, &attr(1), dirs.mark(DIR));
        dirs.changed(&touch(5));
        let (_, age) = dirs.changed_here(DIR, LONG).unwrap();
        assert!(dirs.changed_here(DIR, age).is_none());
        assert!(dirs.changed_here(DIR, Duration::ZERO).is_none());
    }

    #[test]
    fn an_answer_that_a_change_overtook_is_not_kept() {
        let dirs = Dirs::default();
        let mark = dirs.mark(DIR);
        dirs.changed(&touch(5));
        dirs.saw(DIR, &attr(1), mark);
        dirs.changed(&touch(6));
        assert!(dirs.changed_here(DIR, LONG).is_none());
    }

    #[test]
    fn directories_whose_links_or_modes_change_are_asked_for_again() {
        let gone = [
            Change::TouchDir { ino: DIR, links: 1, at: None },
            Change::PutAttr(DIR, attr(2)),
            Change::RemoveAttr(DIR),
        ];
        for change in gone {
            let dirs = Dirs::default();
            dirs.saw(DIR, &attr(1), dirs.mark(DIR));
            dirs.changed(&touch(5));
            dirs.changed(&change);
            assert!(dirs.changed_here(DIR, LONG).is_none(), "{change:?}");
        }
    }
}
