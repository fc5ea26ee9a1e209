//! What a transaction has read under guard, and loading the values that a commit needs.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;

use super::required_reads::RequiredReads;
use super::write_buffer::WriteBuffer;
use crate::error::Result;
use crate::meta::engine::kv::keys::StoreKey;
use crate::meta::engine::kv::store::{Pair, Scan, StoreTxn};
use crate::meta::engine::{CommitError, Key, Record};
use crate::meta::record::Attr;

#[derive(Debug, Default)]
pub(super) struct GuardedReads {
    pub points: HashMap<Vec<u8>, Option<Bytes>>,
    pub scans: Vec<(Scan, Vec<Pair>)>,
    /// Attrs guarded as [`Key::Place`], unless they are in `exact` as well.
    pub places: HashSet<Vec<u8>>,
    /// Attrs that must be exactly as they were read.
    exact: HashSet<Vec<u8>>,
}

impl GuardedReads {
    /// Records which attrs must be as they were read, and which must only be the same place.
    pub fn sort_attrs(&mut self, keys: &[Key], records: &[Record]) {
        for (key, record) in keys.iter().zip(records) {
            match (key, record) {
                (Key::Place(ino), _) => {
                    self.places.insert(StoreKey::Attr(*ino).encode());
                }
                (Key::Attr(ino), _) => {
                    self.exact.insert(StoreKey::Attr(*ino).encode());
                }
                (Key::Lookup(..), Record::Lookup(Some(found))) => {
                    self.exact.insert(StoreKey::Attr(found.entry.ino).encode());
                }
                _ => {}
            }
        }
    }

    pub fn is_place(&self, key: &Vec<u8>) -> bool {
        self.places.contains(key) && !self.exact.contains(key)
    }
}

/// Loads what the changes need and the plan has not read already.
pub(super) async fn load(
    kv: &mut dyn StoreTxn,
    guarded: &GuardedReads,
    required: &RequiredReads,
) -> Result<WriteBuffer> {
    let mut buffer = WriteBuffer::default();
    let mut missing = BTreeSet::new();
    for key in &required.points {
        match guarded.points.get(key) {
            Some(value) => buffer.load(key.clone(), value.clone()),
            None => {
                missing.insert(key.clone());
            }
        }
    }
    let missing: Vec<Vec<u8>> = missing.into_iter().collect();
    if !missing.is_empty() {
        let values = kv.get(&missing).await?;
        missing.into_iter().zip(values).for_each(|(key, value)| buffer.load(key, value));
    }
    list(kv, required, &mut buffer).await?;
    Ok(buffer)
}

/// Loads what the changes need and everything guarded, in a new transaction. Returns a conflict if
/// a guard no longer holds.
pub(super) async fn load_again(
    kv: &mut dyn StoreTxn,
    guarded: &GuardedReads,
    required: &RequiredReads,
) -> Result<WriteBuffer, CommitError> {
    let keys: BTreeSet<&Vec<u8>> = guarded.points.keys().chain(&required.points).collect();
    let keys: Vec<Vec<u8>> = keys.into_iter().cloned().collect();
    let mut buffer = WriteBuffer::default();
    if !keys.is_empty() {
        let values = kv.get(&keys).await.map_err(CommitError::Failed)?;
        keys.into_iter().zip(values).for_each(|(key, value)| buffer.load(key, value));
    }
    for (key, read) in &guarded.points {
        let now = buffer.value(key);
        let holds = match required.heads.get(key) {
            Some(head) => head_of(read.as_ref(), *head) == head_of(now, *head),
            None if guarded.is_place(key) => same_place(read.as_ref(), now),
            None => read.as_ref() == now,
        };
        if !holds {
            return Err(CommitError::Conflict);
        }
    }
    for (scan, read) in &guarded.scans {
        let now = kv.scan(scan).await.map_err(CommitError::Failed)?;
        // A scan for one key asks whether there is any; which one it found does not matter.
        let holds = if scan.limit == 1 { read.is_empty() == now.is_empty() } else { *read == now };
        if !holds {
            return Err(CommitError::Conflict);
        }
    }
    list(kv, required, &mut buffer).await.map_err(CommitError::Failed)?;
    Ok(buffer)
}

async fn list(
    kv: &mut dyn StoreTxn,
    required: &RequiredReads,
    buffer: &mut WriteBuffer,
) -> Result<()> {
    for scan in &required.scans {
        for (key, _) in kv.scan(scan).await? {
            buffer.list(key);
        }
    }
    Ok(())
}

/// Compares two stored attrs by [`Attr::same_place`].
pub(super) fn same_place(read: Option<&Bytes>, now: Option<&Bytes>) -> bool {
    let decode = |raw: Option<&Bytes>| raw.and_then(|raw| Attr::decode(raw).ok());
    match (decode(read), decode(now)) {
        (Some(read), Some(now)) => read.same_place(&now),
        (None, None) => read == now,
        _ => false,
    }
}

fn head_of(raw: Option<&Bytes>, len: usize) -> &[u8] {
    let raw: &[u8] = raw.map_or(&[], AsRef::as_ref);
    raw.get(..len).unwrap_or(raw)
}
