//! The writes of one commit, over the values that were loaded for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use crate::meta::engine::kv::store::Mutation;

#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    loaded: HashMap<Vec<u8>, Option<Bytes>>,
    /// Keys found by scans, to be removed as a whole.
    listed: BTreeSet<Vec<u8>>,
    writes: BTreeMap<Vec<u8>, Option<Bytes>>,
}

impl WriteBuffer {
    pub fn load(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        self.loaded.insert(key, value);
    }

    pub fn list(&mut self, key: Vec<u8>) {
        self.listed.insert(key);
    }

    /// Returns the value as the changes applied so far leave it.
    pub fn value(&self, key: &[u8]) -> Option<&Bytes> {
        match self.writes.get(key) {
            Some(written) => written.as_ref(),
            None => self.loaded.get(key).and_then(Option::as_ref),
        }
    }

    /// Returns the value as it was loaded, whatever was written since; `None` if it was not loaded.
    pub fn loaded(&self, key: &[u8]) -> Option<&Option<Bytes>> {
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

    /// Deletes every key that begins with `prefix`: those that scans found and those written since.
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

    pub fn into_mutations(self) -> impl Iterator<Item = Mutation> {
        self.writes.into_iter()
    }
}
