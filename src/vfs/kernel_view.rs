//! The file attributes that the kernel received recently.
//!
//! The kernel uses the length in the last reply for as long as attributes are cached. If the file
//! was changed elsewhere meanwhile, a process that opens it now must see the change, so opening
//! compares. Only recent replies matter, so the table is small, and a reply that was overwritten
//! counts as unknown.

use crate::meta::record::Attr;
use crate::meta::{Ino, Timestamp};
use crate::sync::Mutex;

const SLOTS: usize = 4096;
/// Slots that share a lock.
const STRIPE: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReportedAttr {
    ino: Ino,
    length: u64,
    mtime: Timestamp,
}

pub struct KernelView(Vec<Mutex<Vec<Option<ReportedAttr>>>>);

impl Default for KernelView {
    fn default() -> Self {
        Self((0..SLOTS / STRIPE).map(|_| Mutex::default()).collect())
    }
}

impl KernelView {
    /// Records the attributes in a reply.
    pub fn record(&self, ino: Ino, attr: &Attr) {
        let reported = ReportedAttr { ino, length: attr.length, mtime: attr.mtime };
        self.slot(ino, |slot| *slot = Some(reported));
    }

    /// Whether the kernel may have other attributes of this file.
    pub fn differs(&self, ino: Ino, attr: &Attr) -> bool {
        let reported = ReportedAttr { ino, length: attr.length, mtime: attr.mtime };
        self.slot(ino, |slot| *slot != Some(reported))
    }

    fn slot<T>(&self, ino: Ino, f: impl FnOnce(&mut Option<ReportedAttr>) -> T) -> T {
        // Inode numbers are allocated in sequence, so their low bits spread well.
        let slot = usize::try_from(ino.0 % SLOTS as u64).unwrap_or_default();
        let mut stripe = self.0[slot / STRIPE].lock();
        if stripe.is_empty() {
            // Allocated on first use: most idle mounts never get here.
            stripe.resize(STRIPE, None);
        }
        f(&mut stripe[slot % STRIPE])
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
    fn the_last_reply_counts() {
        let view = KernelView::default();
        view.record(Ino(5), &attr(1));
        view.record(Ino(5), &attr(2));
        assert!(view.differs(Ino(5), &attr(1)));
        assert!(!view.differs(Ino(5), &attr(2)));
    }

    #[test]
    fn a_reply_that_was_never_sent_or_was_overwritten_is_unknown() {
        let view = KernelView::default();
        assert!(view.differs(Ino(5), &attr(1)));
        view.record(Ino(5), &attr(1));
        view.record(Ino(5 + SLOTS as u64), &attr(1));
        assert!(view.differs(Ino(5), &attr(1)));
    }
}
