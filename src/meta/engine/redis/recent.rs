//! Attrs and entries that this client has seen or written lately, byte for byte: good enough to
//! guess with where a commit is going to compare them, and for nothing else.

use std::num::NonZeroUsize;

use bytes::{BufMut, Bytes, BytesMut};
use lru::LruCache;

use super::super::Change;
use super::guard::Guard;
use super::names::Names;
use crate::meta::record::Attr;
use crate::meta::{Ino, Name};
use crate::sync::{Mutex, MutexGuard};

/// Attrs, some 200 bytes each.
const ATTRS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
/// Entries, some 200 bytes each. A name is looked up right before it is moved or removed.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

pub(super) struct Recent {
    seen: Mutex<Seen>,
}

struct Seen {
    /// Raw attrs by their keys.
    attrs: LruCache<String, Bytes>,
    /// Raw entries by the keys of their directories and their names.
    entries: LruCache<(String, Bytes), Bytes>,
}

impl Recent {
    pub fn new() -> Self {
        let (attrs, entries) = (LruCache::new(ATTRS), LruCache::new(ENTRIES));
        Self { seen: Mutex::new(Seen { attrs, entries }) }
    }

    pub fn attr(&self, key: &str) -> Option<Bytes> {
        self.lock().attrs.get(key).cloned()
    }

    pub fn entry(&self, dir: &str, name: &Bytes) -> Option<Bytes> {
        self.lock().entries.get(&(dir.to_owned(), name.clone())).cloned()
    }

    /// Takes note of what was read.
    pub fn saw(&self, guards: &[Guard]) {
        let mut seen = self.lock();
        for guard in guards {
            match guard {
                Guard::Attr { key, raw } | Guard::Place { key, raw } => match raw {
                    Some(raw) => drop(seen.attrs.put(key.clone(), raw.clone())),
                    None => drop(seen.attrs.pop(key)),
                },
                Guard::Entry { key, field, raw } => {
                    let at = (key.clone(), field.clone());
                    match raw {
                        Some(raw) => drop(seen.entries.put(at, raw.clone())),
                        None => drop(seen.entries.pop(&at)),
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes note of what a commit has written.
    pub fn committed(&self, changes: &[Change], names: &Names) {
        let mut seen = self.lock();
        for change in changes {
            match change {
                Change::PutAttr(ino, attr) => {
                    seen.attrs.put(names.attr(*ino), attr.encode());
                }
                Change::RemoveAttr(ino) => {
                    seen.attrs.pop(&names.attr(*ino));
                }
                Change::TouchDir { ino, links, at } => {
                    if let Some(raw) = seen.attrs.get_mut(&names.attr(*ino))
                        && let Ok(mut attr) = Attr::decode(raw)
                    {
                        attr.touch(*links, *at);
                        *raw = retouched(raw, &attr);
                    }
                }
                Change::PutEntry(dir, name, entry) => {
                    let raw = Bytes::copy_from_slice(&entry.encode());
                    seen.entries.put(place(names, *dir, name), raw);
                }
                Change::RemoveEntry(dir, name) => {
                    seen.entries.pop(&place(names, *dir, name));
                }
                _ => {}
            }
        }
    }

    /// Forgets what a commit has shown to be wrong, or may have.
    pub fn forget(&self, guards: &[Guard]) {
        let mut seen = self.lock();
        for guard in guards {
            match guard {
                Guard::Attr { key, .. } | Guard::Place { key, .. } => drop(seen.attrs.pop(key)),
                Guard::Entry { key, field, .. } => {
                    seen.entries.pop(&(key.clone(), field.clone()));
                }
                _ => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

fn place(names: &Names, dir: Ino, name: &Name) -> (String, Bytes) {
    (names.entries(dir), Bytes::copy_from_slice(name.as_bytes()))
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
