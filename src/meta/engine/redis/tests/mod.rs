//! Tests of the engine against real servers.

mod conflicts;
mod counters_and_quotas;
pub(super) mod fixtures;
mod garbage;
mod go_client;
mod listing;
mod sessions;
mod stored_bytes;
mod volume;

pub(super) use super::RedisEngine;
pub(super) use crate::meta::engine::{
    AclRecords as _, Change, ChangeLogRecords as _, CommitError, CounterRecords as _, Engine,
    GarbageRecords as _, Key, Listings as _, Record, SessionRecords as _, SettingRecords as _,
    UsageRecords as _,
};
pub(super) use crate::meta::record::{Attr, Entry, FileKind, Slice};
pub(super) use crate::meta::{Ino, Name, SliceId, Timestamp};

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(super) fn file() -> Attr {
    Attr::new(FileKind::File, 0o644, 7, 8, Ino::ROOT, Timestamp { sec: 1_700_000_000, nsec: 5 })
}

pub(super) fn entry(ino: u64) -> Entry {
    Entry { kind: FileKind::File, ino: Ino(ino) }
}

pub(super) fn slice(id: u64, pos: u32) -> Slice {
    Slice { pos, id: SliceId(id), size: 100, off: 0, len: 100 }
}

/// Commits changes without guards.
pub(super) async fn put(engine: &RedisEngine, changes: &[Change]) -> Vec<i64> {
    engine.begin().commit(changes).await.unwrap()
}

pub(super) async fn read_one(engine: &RedisEngine, key: Key) -> Record {
    engine.read(&[key]).await.unwrap().pop().unwrap()
}

/// Reads `key`, calls `interfere`, and commits the changes.
pub(super) async fn commit_around(
    engine: &RedisEngine,
    key: Key,
    interfere: impl FnOnce(),
    changes: &[Change],
) -> Result<Vec<i64>, CommitError> {
    let mut txn = engine.begin();
    txn.read(&[key]).await.unwrap();
    interfere();
    txn.commit(changes).await
}

pub(super) fn is_conflict(result: &Result<Vec<i64>, CommitError>) -> bool {
    matches!(result, Err(CommitError::Conflict))
}
