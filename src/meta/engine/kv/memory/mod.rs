//! A store in memory, for tests and benchmarks. Each name is one store of this process.

mod faults;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;

pub use faults::{Fault, Faults};

use super::store::{KvStore, Pair, Scan, StoreProperties, StoreTxn};
use crate::error::{Error, Result};
use crate::meta::engine::CommitError;
use crate::sync::Mutex;

static NAMED: LazyLock<Mutex<HashMap<String, Arc<MemoryStore>>>> = LazyLock::new(Mutex::default);

/// An ordered map whose commits check everything their transactions read.
pub struct MemoryStore {
    place: String,
    log_shards: Option<u16>,
    contents: Arc<Mutex<Contents>>,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Contents {
    map: BTreeMap<Vec<u8>, VersionedValue>,
    /// The version of the last transaction begun or committed.
    clock: u64,
}

struct VersionedValue {
    value: Bytes,
    /// The commit that wrote it.
    version: u64,
}

/// Keys, each with the commit that wrote it.
type Versions = Vec<(Vec<u8>, u64)>;

impl MemoryStore {
    /// Creates a store without a name.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::at("memkv://".to_owned(), None))
    }

    /// Like [`MemoryStore::new`], with a sharded change log as on TiKV.
    pub fn with_log_shards(shards: u16) -> Arc<Self> {
        Arc::new(Self::at("memkv://".to_owned(), Some(shards)))
    }

    /// Returns the store of that name. It lives as long as the process.
    pub fn named(name: &str) -> Arc<Self> {
        let mut stores = NAMED.lock();
        let make = || Arc::new(Self::at(format!("memkv://{name}"), None));
        stores.entry(name.to_owned()).or_insert_with(make).clone()
    }

    /// Returns the faults that the next commits will run into.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns every pair, to compare with what another client would store.
    pub fn dump(&self) -> Vec<Pair> {
        let contents = self.contents.lock();
        contents.map.iter().map(|(key, stored)| (key.clone(), stored.value.clone())).collect()
    }

    /// Sets one value outside all transactions, as another client might.
    pub fn overwrite(&self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.contents.lock().apply([(key, Some(value.into()))]);
    }

    fn at(place: String, log_shards: Option<u16>) -> Self {
        Self { place, log_shards, contents: Arc::default(), faults: Arc::default() }
    }
}

impl Contents {
    fn get(&self, key: &[u8]) -> (Option<Bytes>, Option<u64>) {
        self.map.get(key).map(|stored| (stored.value.clone(), stored.version)).unzip()
    }

    fn scan<'a>(&'a self, scan: &Scan) -> impl Iterator<Item = (&'a Vec<u8>, &'a VersionedValue)> {
        let range = if scan.start < scan.end {
            scan.start.clone()..scan.end.clone()
        } else {
            Vec::new()..Vec::new()
        };
        self.map.range(range).take(scan.limit)
    }

    fn pairs(&self, scan: &Scan) -> Vec<Pair> {
        let value =
            |stored: &VersionedValue| if scan.values { stored.value.clone() } else { Bytes::new() };
        self.scan(scan).map(|(key, stored)| (key.clone(), value(stored))).collect()
    }

    fn versions(&self, scan: &Scan) -> Versions {
        self.scan(scan).map(|(key, stored)| (key.clone(), stored.version)).collect()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn apply(&mut self, writes: impl IntoIterator<Item = (Vec<u8>, Option<Bytes>)>) {
        let version = self.tick();
        for (key, value) in writes {
            match value {
                Some(value) => self.map.insert(key, VersionedValue { value, version }),
                None => self.map.remove(&key),
            };
        }
    }
}

#[async_trait]
impl KvStore for MemoryStore {
    fn properties(&self) -> StoreProperties {
        StoreProperties {
            name: "memkv",
            refuses_empty_values: false,
            log_shards: self.log_shards,
            batch: 1666,
            shared_lock_slots: 0,
        }
    }

    fn address(&self) -> &str {
        &self.place
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        Ok(Box::new(MemoryTxn {
            version: self.contents.lock().tick(),
            place: self.place.clone(),
            contents: self.contents.clone(),
            faults: self.faults.clone(),
            points: HashMap::new(),
            scans: Vec::new(),
            writes: Vec::new(),
        }))
    }

    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let contents = self.contents.lock();
        Ok(keys.iter().map(|key| contents.get(key).0).collect())
    }

    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>> {
        Ok(self.contents.lock().pairs(scan))
    }

    async fn wipe(&self) -> Result<()> {
        self.contents.lock().map.clear();
        Ok(())
    }
}

struct MemoryTxn {
    version: u64,
    place: String,
    contents: Arc<Mutex<Contents>>,
    faults: Arc<Faults>,
    /// The version of each key when it was first read; `None` if it did not exist.
    points: HashMap<Vec<u8>, Option<u64>>,
    scans: Vec<(Scan, Versions)>,
    writes: Vec<(Vec<u8>, Option<Bytes>)>,
}

#[async_trait]
impl StoreTxn for MemoryTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let contents = self.contents.lock();
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            let (value, version) = contents.get(key);
            self.points.entry(key.clone()).or_insert(version);
            values.push(value);
        }
        Ok(values)
    }

    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        let contents = self.contents.lock();
        self.scans.push((scan.clone(), contents.versions(scan)));
        Ok(contents.pairs(scan))
    }

    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.writes.push((key, Some(value)));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.writes.push((key, None));
    }

    fn version(&self) -> u64 {
        self.version
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        let lost = || {
            let cause = "the response was lost on purpose".to_owned();
            CommitError::Unknown(Error::Unreachable { place: self.place.clone(), cause })
        };
        let fault = self.faults.next();
        let mut contents = self.contents.lock();
        let holds = self.points.iter().all(|(key, version)| contents.get(key).1 == *version)
            && self.scans.iter().all(|(scan, versions)| contents.versions(scan) == *versions);
        match fault {
            _ if !holds => return Err(CommitError::Conflict),
            Some(Fault::Conflict) => return Err(CommitError::Conflict),
            Some(Fault::LostUnapplied) => return Err(lost()),
            Some(Fault::LostApplied) | None => {}
        }
        contents.apply(std::mem::take(&mut self.writes));
        match fault {
            Some(Fault::LostApplied) => Err(lost()),
            _ => Ok(()),
        }
    }
}
