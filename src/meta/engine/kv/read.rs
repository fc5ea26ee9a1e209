//! Reading records: which stored keys and ranges a [`Key`] stands for, and decoding their values.

use bytes::Bytes;

use super::keys::{StoreKey, prefix};
use super::store::{KvStore, Pair, Scan};
use super::values;
use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::record::{AclRule, Attr, DirStat, Entry, Quota, chunk, delayed_slices};
use crate::meta::{Ino, Name};

/// Where values come from: the store itself, or a transaction that remembers what it returned.
pub(super) trait ReadSource: Send {
    fn get(&mut self, keys: &[Vec<u8>]) -> impl Future<Output = Result<Vec<Option<Bytes>>>> + Send;
    fn scan(&mut self, scan: Scan) -> impl Future<Output = Result<Vec<Pair>>> + Send;
}

/// Unguarded reads.
pub(super) struct Unguarded<'a>(pub &'a dyn KvStore);

impl ReadSource for Unguarded<'_> {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.0.get(keys).await
    }

    async fn scan(&mut self, scan: Scan) -> Result<Vec<Pair>> {
        self.0.scan(&scan).await
    }
}

/// Returns the records of `keys`, in order. Reads one batch of values, one more for the attrs of
/// lookups, and a scan for each key that is a range.
pub(super) async fn records(source: &mut impl ReadSource, keys: &[Key]) -> Result<Vec<Record>> {
    let points: Vec<Vec<u8>> = keys.iter().filter_map(point).collect();
    let values = if points.is_empty() { Vec::new() } else { source.get(&points).await? };
    let mut values = values.into_iter();
    let mut records = Vec::with_capacity(keys.len());
    for key in keys {
        let record = match range(key) {
            Some(scan) => decode_range(key, source.scan(scan).await?),
            None => decode_value(key, values.next().flatten()),
        };
        records.push(record.map_err(|error| locate(key, error))?);
    }
    fill_lookup_attrs(source, &mut records).await?;
    Ok(records)
}

/// Fills in the attrs of lookups that found an entry.
async fn fill_lookup_attrs(source: &mut impl ReadSource, records: &mut [Record]) -> Result<()> {
    let mut found: Vec<&mut Found> = records
        .iter_mut()
        .filter_map(|record| match record {
            Record::Lookup(found) => found.as_mut(),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    let keys: Vec<Vec<u8>> =
        found.iter().map(|found| StoreKey::Attr(found.entry.ino).encode()).collect();
    for (found, raw) in found.iter_mut().zip(source.get(&keys).await?) {
        let ino = found.entry.ino;
        found.attr = decode_attr(raw.as_deref()).map_err(|error| locate(&Key::Attr(ino), error))?;
    }
    Ok(())
}

/// Returns the stored key of a record that is one value.
fn point(key: &Key) -> Option<Vec<u8>> {
    let stored = match key {
        Key::Attr(ino) | Key::Place(ino) => StoreKey::Attr(*ino),
        Key::Entry(dir, name) | Key::Lookup(dir, name) => StoreKey::Entry(*dir, name.clone()),
        Key::Chunk(ino, index) => StoreKey::Chunk(*ino, *index),
        Key::Symlink(ino) => StoreKey::Symlink(*ino),
        Key::Xattr(ino, name) => StoreKey::Xattr(*ino, name.clone()),
        Key::Flocks(ino) => StoreKey::Flocks(*ino),
        Key::Plocks(ino) => StoreKey::Plocks(*ino),
        Key::Sustained(sid, ino) => StoreKey::Sustained(*sid, *ino),
        Key::SliceRef(id, size) => StoreKey::SliceRef(*id, *size),
        Key::Delayed(id, at) => StoreKey::Delayed { at: *at, id: *id },
        Key::DirStat(ino) => StoreKey::DirStat(*ino),
        Key::Quota(quota) => StoreKey::Quota(*quota),
        Key::Acl(id) => StoreKey::Acl(*id),
        Key::HasEntries(_) | Key::Xattrs(_) | Key::Parents(_) => return None,
    };
    Some(stored.encode())
}

/// Returns the scan of a record that is a range of keys.
fn range(key: &Key) -> Option<Scan> {
    match key {
        Key::HasEntries(dir) => Some(Scan::prefix(prefix::entries(*dir)).keys_only().limit(1)),
        Key::Xattrs(ino) => Some(Scan::prefix(prefix::xattrs(*ino))),
        Key::Parents(ino) => Some(Scan::prefix(prefix::parents(*ino))),
        _ => None,
    }
}

fn decode_value(key: &Key, raw: Option<Bytes>) -> Result<Record> {
    let bytes = raw.as_deref();
    Ok(match key {
        Key::Attr(_) | Key::Place(_) => Record::Attr(decode_attr(bytes)?),
        Key::Entry(..) => Record::Entry(bytes.map(Entry::decode).transpose()?),
        Key::Lookup(..) => {
            let entry = bytes.map(Entry::decode).transpose()?;
            Record::Lookup(entry.map(|entry| Found { entry, attr: None }))
        }
        Key::Chunk(..) => Record::Chunk(chunk::decode(bytes.unwrap_or_default())?),
        Key::Symlink(_) => Record::Symlink(raw),
        Key::Xattr(..) => Record::Xattr(raw),
        Key::Flocks(_) => Record::Flocks(values::decode_flocks(bytes.unwrap_or_default())?),
        Key::Plocks(_) => Record::Plocks(values::decode_plocks(bytes.unwrap_or_default())?),
        Key::Sustained(..) => Record::Sustained(raw.is_some()),
        // The stored number counts references beyond the first, and is absent until there is one.
        Key::SliceRef(..) => Record::SliceRef(values::decode_number(raw.as_ref())? + 1),
        Key::Delayed(..) => Record::Delayed(delayed_slices::decode(bytes.unwrap_or_default())?),
        Key::DirStat(_) => Record::DirStat(bytes.map(DirStat::decode).transpose()?),
        Key::Quota(_) => Record::Quota(bytes.map(Quota::decode).transpose()?),
        Key::Acl(_) => Record::Acl(bytes.map(AclRule::decode).transpose()?),
        Key::HasEntries(_) | Key::Xattrs(_) | Key::Parents(_) => {
            return Err(Error::damaged(format!("{key:?}"), "one value instead of a range"));
        }
    })
}

fn decode_range(key: &Key, pairs: Vec<Pair>) -> Result<Record> {
    Ok(match key {
        Key::HasEntries(_) => Record::HasEntries(!pairs.is_empty()),
        Key::Xattrs(_) => Record::Xattrs(pairs.into_iter().filter_map(xattr).collect()),
        _ => {
            let mut parents = Vec::with_capacity(pairs.len());
            for pair in pairs {
                parents.extend(parent(&pair)?);
            }
            Record::Parents(parents)
        }
    })
}

fn xattr((key, value): Pair) -> Option<(Name, Bytes)> {
    match StoreKey::decode(&key) {
        Some(StoreKey::Xattr(_, name)) => Some((name, value)),
        _ => None,
    }
}

/// Decodes a parent and its count. Counts that fell to zero stay in the store and are skipped.
fn parent((key, value): &Pair) -> Result<Option<(Ino, i64)>> {
    let Some(StoreKey::Parent { parent, .. }) = StoreKey::decode(key) else { return Ok(None) };
    let count = values::decode_number(Some(value))?;
    Ok((count > 0).then_some((parent, count)))
}

fn decode_attr(raw: Option<&[u8]>) -> Result<Option<Attr>> {
    raw.map(Attr::decode).transpose()
}

/// Adds the record to the error of decoding it.
fn locate(key: &Key, error: Error) -> Error {
    match error {
        Error::Damaged { cause, .. } => Error::damaged(format!("{key:?}"), cause),
        other => other,
    }
}
