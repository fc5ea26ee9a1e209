//! Parents: which directory holds which, as far as this client has seen.
//!
//! Only quotas need it: a change in a directory counts for every quota above. What other clients
//! move is unknown until the next heartbeat forgets everything.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::meta::Ino;
use crate::meta::record::Attr;

/// Directories remembered at most.
const LIMIT: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// Deeper than any real tree; a damaged one may be a ring.
const MAX_DEPTH: usize = 4096;

pub struct Parents {
    known: Mutex<LruCache<Ino, Ino>>,
}

/// How far up the known parents lead.
#[derive(Debug, PartialEq, Eq)]
pub enum Climb {
    /// A directory and all above it, the root last; nothing for what lies in the trash.
    Whole(Vec<Ino>),
    /// The parent of this directory is not known.
    Unknown(Ino),
}

impl Default for Parents {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(LIMIT)) }
    }
}

impl Parents {
    pub fn climb(&self, dir: Ino) -> Climb {
        let mut known = self.lock();
        let mut chain = Vec::new();
        let mut at = dir;
        while !at.is_trash() && chain.len() < MAX_DEPTH {
            chain.push(at);
            if at == Ino::ROOT {
                return Climb::Whole(chain);
            }
            match known.get(&at) {
                Some(parent) => at = *parent,
                None => return Climb::Unknown(at),
            }
        }
        Climb::Whole(Vec::new())
    }

    /// Takes note of a directory's attr just read or written.
    pub fn saw(&self, dir: Ino, attr: &Attr) {
        if !attr.is_dir() || dir == Ino::ROOT {
            return;
        }
        if attr.parent == Ino::NONE {
            self.forget(dir);
        } else {
            self.lock().put(dir, attr.parent);
        }
    }

    pub fn forget(&self, dir: Ino) {
        self.lock().pop(&dir);
    }

    pub fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Ino, Ino>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Timestamp;
    use crate::meta::record::FileKind;

    fn dir_in(parent: u64) -> Attr {
        Attr::new(FileKind::Dir, 0o755, 0, 0, Ino(parent), Timestamp::default())
    }

    #[test]
    fn a_known_chain_leads_to_the_root() {
        let parents = Parents::default();
        parents.saw(Ino(3), &dir_in(2));
        assert_eq!(parents.climb(Ino(3)), Climb::Unknown(Ino(2)));
        parents.saw(Ino(2), &dir_in(1));
        assert_eq!(parents.climb(Ino(3)), Climb::Whole(vec![Ino(3), Ino(2), Ino(1)]));
        assert_eq!(parents.climb(Ino::ROOT), Climb::Whole(vec![Ino::ROOT]));
    }

    #[test]
    fn what_moved_is_asked_for_again() {
        let parents = Parents::default();
        parents.saw(Ino(3), &dir_in(1));
        parents.forget(Ino(3));
        assert_eq!(parents.climb(Ino(3)), Climb::Unknown(Ino(3)));
    }

    #[test]
    fn the_trash_is_below_no_quota() {
        let parents = Parents::default();
        assert_eq!(parents.climb(Ino::TRASH), Climb::Whole(vec![]));
        parents.saw(Ino(3), &dir_in(Ino::TRASH.0 + 1));
        assert_eq!(parents.climb(Ino(3)), Climb::Whole(vec![]));
    }

    #[test]
    fn a_ring_ends() {
        let parents = Parents::default();
        parents.saw(Ino(3), &dir_in(2));
        parents.saw(Ino(2), &dir_in(3));
        assert_eq!(parents.climb(Ino(3)), Climb::Whole(vec![]));
    }
}
