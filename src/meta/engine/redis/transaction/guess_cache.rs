//! The guess cache: the exact bytes of attrs and entries that this client has read or written
//! recently. They may be stale, so they serve only as guesses that a commit will compare.

use std::num::NonZeroUsize;

use bytes::{BufMut, Bytes, BytesMut};
use lru::LruCache;

use super::super::records::keyspace::KeySpace;
use super::guard::Guard;
use crate::meta::engine::Change;
use crate::meta::record::Attr;
use crate::meta::{Ino, Name};
use crate::sync::Mutex;

/// Attrs in the cache, some 200 bytes each.
const MAX_ATTRS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
/// Entries in the cache, some 200 bytes each. Fewer than attrs, since a name is looked up just before
/// it is renamed or removed.
const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

pub(in super::super) struct GuessCache {
    cached: Mutex<Cached>,
}

struct Cached {
    /// Raw attrs by their keys.
    attrs: LruCache<String, Bytes>,
    /// Raw entries by the keys of their directories and their names.
    entries: LruCache<(String, Bytes), Bytes>,
}

impl GuessCache {
    pub fn new() -> Self {
        let (attrs, entries) = (LruCache::new(MAX_ATTRS), LruCache::new(MAX_ENTRIES));
        Self { cached: Mutex::new(Cached { attrs, entries }) }
    }

    pub fn attr(&self, key: &str) -> Option<Bytes> {
        self.cached.lock().attrs.get(key).cloned()
    }

    pub fn entry(&self, dir: &str, name: &Bytes) -> Option<Bytes> {
        self.cached.lock().entries.get(&(dir.to_owned(), name.clone())).cloned()
    }

    /// Caches the records that were read.
    pub(super) fn insert_read(&self, guards: &[Guard]) {
        let mut cached = self.cached.lock();
        for guard in guards {
            match guard {
                Guard::Attr { key, raw } | Guard::Place { key, raw } => match raw {
                    Some(raw) => drop(cached.attrs.put(key.clone(), raw.clone())),
                    None => drop(cached.attrs.pop(key)),
                },
                Guard::Entry { key, field, raw } => {
                    let at = (key.clone(), field.clone());
                    match raw {
                        Some(raw) => drop(cached.entries.put(at, raw.clone())),
                        None => drop(cached.entries.pop(&at)),
                    }
                }
                _ => {}
            }
        }
    }

    /// Caches the records that a commit has written.
    pub(super) fn insert_committed(&self, changes: &[Change], keyspace: &KeySpace) {
        let mut cached = self.cached.lock();
        for change in changes {
            match change {
                Change::PutAttr(ino, attr) => {
                    cached.attrs.put(keyspace.attr(*ino), attr.encode());
                }
                Change::RemoveAttr(ino) => {
                    cached.attrs.pop(&keyspace.attr(*ino));
                }
                Change::TouchDir { ino, links, at } => {
                    if let Some(raw) = cached.attrs.get_mut(&keyspace.attr(*ino))
                        && let Ok(mut attr) = Attr::decode(raw)
                    {
                        attr.touch(*links, *at);
                        *raw = with_times_and_links(raw, &attr);
                    }
                }
                Change::PutEntry(dir, name, entry) => {
                    let raw = Bytes::copy_from_slice(&entry.encode());
                    cached.entries.put(entry_key(keyspace, *dir, name), raw);
                }
                Change::RemoveEntry(dir, name) => {
                    cached.entries.pop(&entry_key(keyspace, *dir, name));
                }
                _ => {}
            }
        }
    }

    /// Removes the records that a failed commit rested on: they may be stale.
    pub(super) fn forget(&self, guards: &[Guard]) {
        let mut cached = self.cached.lock();
        for guard in guards {
            match guard {
                Guard::Attr { key, .. } | Guard::Place { key, .. } => drop(cached.attrs.pop(key)),
                Guard::Entry { key, field, .. } => {
                    cached.entries.pop(&(key.clone(), field.clone()));
                }
                _ => {}
            }
        }
    }
}

fn entry_key(keyspace: &KeySpace, dir: Ino, name: &Name) -> (String, Bytes) {
    (keyspace.entries(dir), Bytes::copy_from_slice(name.as_bytes()))
}

/// Returns `raw` with the times and link count of `attr`. The other bytes stay, since the record may
/// be of another version.
fn with_times_and_links(raw: &Bytes, attr: &Attr) -> Bytes {
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
