//! A metadata store whose connection breaks right after a commit, before its reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use jfs::meta::engine::CommitError;
use jfs::meta::engine::kv::{KvStore, MemoryStore, Pair, Scan, StoreProperties, StoreTxn};
use jfs::{Error, Result};

const WHOLE: u8 = 0;
const ARMED: u8 = 1;
const CUT: u8 = 2;

pub struct CutStore {
    store: Arc<MemoryStore>,
    line: Arc<AtomicU8>,
}

struct CutTxn {
    txn: Box<dyn StoreTxn>,
    line: Arc<AtomicU8>,
}

impl CutStore {
    pub fn new(store: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { store, line: Arc::default() })
    }

    /// The next commit is the last that arrives.
    pub fn arm(&self) {
        self.line.store(ARMED, Ordering::SeqCst);
    }

    pub fn mend(&self) {
        self.line.store(WHOLE, Ordering::SeqCst);
    }
}

fn broken() -> Error {
    Error::Unreachable { place: "cut".to_owned(), cause: "the line is cut".to_owned() }
}

fn check(line: &AtomicU8) -> Result<()> {
    if line.load(Ordering::SeqCst) == CUT { Err(broken()) } else { Ok(()) }
}

#[async_trait]
impl KvStore for CutStore {
    fn properties(&self) -> StoreProperties {
        self.store.properties()
    }

    fn address(&self) -> &str {
        self.store.address()
    }

    async fn begin(&self) -> Result<Box<dyn StoreTxn>> {
        check(&self.line)?;
        let line = Arc::clone(&self.line);
        Ok(Box::new(CutTxn { txn: self.store.begin().await?, line }))
    }

    async fn get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        check(&self.line)?;
        self.store.get(keys).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Vec<Pair>> {
        check(&self.line)?;
        self.store.scan(scan).await
    }

    async fn wipe(&self) -> Result<()> {
        self.store.wipe().await
    }
}

#[async_trait]
impl StoreTxn for CutTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        check(&self.line)?;
        self.txn.get(keys).await
    }

    async fn scan(&mut self, scan: &Scan) -> Result<Vec<Pair>> {
        check(&self.line)?;
        self.txn.scan(scan).await
    }

    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.txn.put(key, value);
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.txn.delete(key);
    }

    fn version(&self) -> u64 {
        self.txn.version()
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        check(&self.line).map_err(CommitError::Failed)?;
        self.txn.commit().await?;
        match self.line.compare_exchange(ARMED, CUT, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Err(CommitError::Unknown(broken())),
            Err(_) => Ok(()),
        }
    }
}
