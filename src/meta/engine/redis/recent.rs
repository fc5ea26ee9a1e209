//! Attrs that this client's commits have proven or written lately, byte for byte: good enough to
//! guess with where a commit is going to compare them, and for nothing else.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use lru::LruCache;

use super::super::Change;
use super::guard::Guard;
use super::names::Names;
use crate::meta::record::Attr;

/// Some 200 bytes each.
const MOST: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// Raw attrs by their keys.
pub(super) struct Recent {
    attrs: Mutex<LruCache<String, Bytes>>,
}

impl Recent {
    pub fn new() -> Self {
        Self { attrs: Mutex::new(LruCache::new(MOST)) }
    }

    pub fn attr(&self, key: &str) -> Option<Bytes> {
        self.lock().get(key).cloned()
    }

    /// Takes note of a commit that went through: what it compared was there, what it wrote is.
    pub fn committed(&self, guards: &[Guard], changes: &[Change], names: &Names) {
        let mut attrs = self.lock();
        for guard in guards {
            // Not over what is known: the times of a place are not compared, and may be old.
            if let Guard::Place { key, raw: Some(raw) } = guard
                && !attrs.contains(key)
            {
                attrs.put(key.clone(), raw.clone());
            }
        }
        for change in changes {
            match change {
                Change::PutAttr(ino, attr) => {
                    attrs.put(names.attr(*ino), attr.encode());
                }
                Change::RemoveAttr(ino) => {
                    attrs.pop(&names.attr(*ino));
                }
                Change::TouchDir { ino, links, at } => {
                    if let Some(raw) = attrs.get_mut(&names.attr(*ino))
                        && let Ok(mut attr) = Attr::decode(raw)
                    {
                        attr.touch(*links, *at);
                        *raw = retouched(raw, &attr);
                    }
                }
                _ => {}
            }
        }
    }

    /// Forgets what a commit has shown to be wrong, or may have.
    pub fn forget(&self, guards: &[Guard]) {
        let mut attrs = self.lock();
        for guard in guards {
            if let Guard::Place { key, .. } | Guard::Value { key, .. } = guard {
                attrs.pop(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, Bytes>> {
        self.attrs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The times and link count of `attr` in the bytes of `raw`, whose other parts may be of another
/// version of the record.
fn retouched(raw: &Bytes, attr: &Attr) -> Bytes {
    let mut out = BytesMut::with_capacity(raw.len());
    out.put_slice(&raw[..23]);
    for time in [attr.mtime, attr.ctime] {
        out.put_i64(time.sec);
        out.put_u32(time.nsec);
    }
    out.put_u32(attr.nlink);
    out.put_slice(&raw[51..]);
    out.freeze()
}
