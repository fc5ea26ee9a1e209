//! Empty stores to test on: one factory for each kind.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jfs::object::fault_injection::{FaultRates, FaultyStore};
use jfs::object::mem::MemStore;
use jfs::object::retry::Retry;
use jfs::object::{Encryption, ObjectStore, Spec, open};
use jfs::secret::Secret;

use crate::minio::MinioServer;
use crate::s3::S3Server;

pub const KEY: &str = include_str!("../../src/object/wrappers/encrypt/golden/pkcs8.pem");

/// A store, and what keeps it alive.
pub struct TestStore {
    pub store: Arc<dyn ObjectStore>,
    _owner: Option<Box<dyn Any + Send>>,
}

impl TestStore {
    fn open(spec: &Spec, owner: Option<Box<dyn Any + Send>>) -> Self {
        Self { store: open(spec).expect("the store opens"), _owner: owner }
    }
}

pub fn mem() -> TestStore {
    TestStore::open(&Spec::new("mem", &fresh_name()), None)
}

/// Without sync, which these tests do not cover.
pub fn file() -> TestStore {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bucket = format!("{}/", dir.path().display());
    let spec = Spec { sync: false, ..Spec::new("file", &bucket) };
    TestStore::open(&spec, Some(Box::new(dir)))
}

pub fn s3() -> TestStore {
    let server = S3Server::start();
    let spec = server.spec("bucket");
    TestStore::open(&spec, Some(Box::new(server)))
}

/// A bucket of its own on the server that all tests share.
pub fn minio() -> TestStore {
    TestStore::open(&MinioServer::shared().spec(&fresh_name()), None)
}

pub fn prefixed_files() -> TestStore {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bucket = format!("{}/", dir.path().display());
    let spec = Spec { sync: false, prefix: "vol/".to_owned(), ..Spec::new("file", &bucket) };
    TestStore::open(&spec, Some(Box::new(dir)))
}

pub fn sharded_files() -> TestStore {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bucket = format!("{}/%d/", dir.path().display());
    let prefix = "vol/".to_owned();
    let spec = Spec { sync: false, shards: 3, prefix, ..Spec::new("file", &bucket) };
    TestStore::open(&spec, Some(Box::new(dir)))
}

pub fn encrypted() -> TestStore {
    let spec = Spec { encryption: Some(encryption("")), ..Spec::new("mem", &fresh_name()) };
    TestStore::open(&spec, None)
}

/// Fails intermittently, with retries.
pub fn flaky() -> TestStore {
    let rates = FaultRates {
        error: 0.002,
        lost_response: 0.002,
        delay: 0.1,
        max_delay: Duration::from_micros(100),
        ..FaultRates::default()
    };
    let faulty = FaultyStore::seeded(Arc::new(MemStore::default()), rates, 1);
    TestStore { store: Arc::new(Retry::new(Arc::new(faulty), 10)), _owner: None }
}

pub fn encryption(algo: &str) -> Encryption {
    Encryption { algo: algo.to_owned(), key: Secret::new(KEY), passphrase: Secret::default() }
}

pub fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("store-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
