//! Values as a commit sees them: what was loaded, under what its changes have written so far.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

/// A key and its new value, or `None` to delete it.
pub(super) type Write = (Vec<u8>, Option<Bytes>);

#[derive(Debug, Default)]
pub(super) struct Overlay {
    loaded: HashMap<Vec<u8>, Option<Bytes>>,
    /// Keys found by scans, to be removed as a whole.
    listed: BTreeSet<Vec<u8>>,
    writes: BTreeMap<Vec<u8>, Option<Bytes>>,
}

impl Overlay {
    pub fn load(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        self.loaded.insert(key, value);
    }

    pub fn list(&mut self, key: Vec<u8>) {
        self.listed.insert(key);
    }

    pub fn value(&self, key: &[u8]) -> Option<&Bytes> {
        match self.writes.get(key) {
            Some(written) => written.as_ref(),
            None => self.loaded.get(key).and_then(Option::as_ref),
        }
    }

    /// What was loaded, whatever was written since; `None` if it was not.
    pub fn before(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.loaded.get(key)
    }

    pub fn writes(&self, key: &[u8]) -> bool {
        self.writes.contains_key(key)
    }

    pub fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.writes.insert(key, Some(value));
    }

    pub fn delete(&mut self, key: Vec<u8>) {
        self.writes.insert(key, None);
    }

    /// Deletes every key that begins with `prefix`: those that scans found, and those written
    /// since.
    pub fn delete_prefix(&mut self, prefix: &[u8]) {
        let found = self.listed.range(prefix.to_vec()..);
        let found: Vec<Vec<u8>> =
            found.take_while(|key| key.starts_with(prefix)).cloned().collect();
        for key in found {
            self.writes.insert(key, None);
        }
        for (_, value) in
            self.writes.range_mut(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix))
        {
            *value = None;
        }
    }

    pub fn written(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.writes.keys()
    }

    pub fn into_writes(self) -> impl Iterator<Item = Write> {
        self.writes.into_iter()
    }
}
