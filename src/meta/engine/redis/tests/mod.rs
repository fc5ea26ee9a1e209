//! Tests against real servers.

mod address;
mod conflicts;
mod connecting;
mod faults;
mod garbage;
mod go_client;
mod hostile;
mod line;
mod listing;
mod proxy;
mod server;
mod sessions;
mod stored;
mod usage;
mod volume;

use super::super::{
    AclRecords as _, Change, ChangeLogRecords as _, CommitError, CounterRecords as _, Engine,
    GarbageRecords as _, Key, Listings as _, Record, SessionRecords as _, SettingRecords as _,
    UsageRecords as _,
};
use super::RedisEngine;
use crate::meta::record::{Attr, Entry, FileKind, Slice};
use crate::meta::{Ino, Name, SliceId, Timestamp};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn file() -> Attr {
    Attr::new(FileKind::File, 0o644, 7, 8, Ino::ROOT, Timestamp { sec: 1_700_000_000, nsec: 5 })
}

fn entry(ino: u64) -> Entry {
    Entry { kind: FileKind::File, ino: Ino(ino) }
}

fn slice(id: u64, pos: u32) -> Slice {
    Slice { pos, id: SliceId(id), size: 100, off: 0, len: 100 }
}

/// Commits changes that depend on nothing.
async fn put(engine: &RedisEngine, changes: &[Change]) -> Vec<i64> {
    engine.begin().commit(changes).await.unwrap()
}

async fn read_one(engine: &RedisEngine, key: Key) -> Record {
    engine.read(&[key]).await.unwrap().pop().unwrap()
}

/// The changes after a read of `key` and `meddle`.
async fn commit_around(
    engine: &RedisEngine,
    key: Key,
    meddle: impl FnOnce(),
    changes: &[Change],
) -> Result<Vec<i64>, CommitError> {
    let mut txn = engine.begin();
    txn.read(&[key]).await.unwrap();
    meddle();
    txn.commit(changes).await
}

fn is_conflict(result: &Result<Vec<i64>, CommitError>) -> bool {
    matches!(result, Err(CommitError::Conflict))
}
