//! What the kernel was told of files a moment ago.
//!
//! The kernel goes by the length it was told last, for as long as attributes live. A file that was
//! changed elsewhere meanwhile must look changed to whoever opens it now, so opening compares.
//! Only recent answers matter, so the table is small, and an answer that was pushed out counts as
//! unknown.

use crate::meta::record::Attr;
use crate::meta::{Ino, Timestamp};
use crate::sync::Mutex;

const SLOTS: usize = 4096;
/// Slots that share a lock.
const STRIPE: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    ino: Ino,
    length: u64,
    mtime: Timestamp,
}

pub struct Told(Vec<Mutex<Vec<Option<Answer>>>>);

impl Default for Told {
    fn default() -> Self {
        Self((0..SLOTS / STRIPE).map(|_| Mutex::default()).collect())
    }
}

impl Told {
    /// The kernel is being told this.
    pub fn tell(&self, ino: Ino, attr: &Attr) {
        let answer = Answer { ino, length: attr.length, mtime: attr.mtime };
        self.slot(ino, |slot| *slot = Some(answer));
    }

    /// Whether the kernel may believe something else of this file.
    pub fn differs(&self, ino: Ino, attr: &Attr) -> bool {
        let answer = Answer { ino, length: attr.length, mtime: attr.mtime };
        self.slot(ino, |slot| *slot != Some(answer))
    }

    fn slot<T>(&self, ino: Ino, f: impl FnOnce(&mut Option<Answer>) -> T) -> T {
        // Inodes are given out one after the other, so their low bits spread well.
        let place = usize::try_from(ino.0 % SLOTS as u64).unwrap_or_default();
        let mut stripe = self.0[place / STRIPE].lock();
        if stripe.is_empty() {
            // On first use: most mounts that are idle never get here.
            stripe.resize(STRIPE, None);
        }
        f(&mut stripe[place % STRIPE])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::FileKind;

    fn attr(length: u64) -> Attr {
        let attr = Attr::new(FileKind::File, 0o644, 0, 0, Ino::ROOT, Timestamp::default());
        Attr { length, ..attr }
    }

    #[test]
    fn what_was_told_last_counts() {
        let told = Told::default();
        told.tell(Ino(5), &attr(1));
        told.tell(Ino(5), &attr(2));
        assert!(told.differs(Ino(5), &attr(1)));
        assert!(!told.differs(Ino(5), &attr(2)));
    }

    #[test]
    fn what_was_never_told_or_was_pushed_out_is_unknown() {
        let told = Told::default();
        assert!(told.differs(Ino(5), &attr(1)));
        told.tell(Ino(5), &attr(1));
        told.tell(Ino(5 + SLOTS as u64), &attr(1));
        assert!(told.differs(Ino(5), &attr(1)));
    }
}
