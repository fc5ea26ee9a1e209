//! Writes: the commands that apply a plan's changes.

use bytes::Bytes;

use super::super::records::keyspace::{self, KeySpace};
use super::batch::{Batch, MAX_ARGS, ValueType};
use super::bulk_write::BulkWrite;
use crate::meta::engine::Change;
use crate::meta::record::chunk::{self, SLICE_LEN};
use crate::meta::record::{Counter, DirStat, QuotaKey, Slice, SliceSize, delayed_slices, lock};
use crate::meta::{Ino, Sid};

/// Where the number that a change returns comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResultSource {
    Zero,
    /// The result of the reporting command `index`, plus `plus`.
    Report {
        index: usize,
        plus: i64,
    },
}

/// Adds the commands of all changes to the batch. Returns where the number of each change comes from.
pub(super) fn add(batch: &mut Batch, changes: &[Change], keyspace: &KeySpace) -> Vec<ResultSource> {
    // Counters come first: only their commands can fail on a value of the right type, and they must
    // fail before anything else is applied.
    let used = changes.iter().fold((0, 0), |sum: (i64, i64), change| match change {
        Change::AddUsage { space, inodes } => (sum.0 + space, sum.1 + inodes),
        _ => sum,
    });
    add_usage(batch, keyspace, used.0, used.1);
    let Some(bulk) = BulkWrite::group(changes, keyspace) else {
        return changes.iter().map(|change| add_one(batch, change, keyspace)).collect();
    };
    let rest = |change| match change {
        change if BulkWrite::handles(change) => ResultSource::Zero,
        change => add_one(batch, change, keyspace),
    };
    let sources = changes.iter().map(rest).collect();
    bulk.add_to(batch, keyspace);
    sources
}

#[expect(clippy::too_many_lines, reason = "one arm per change")]
fn add_one(batch: &mut Batch, change: &Change, keyspace: &KeySpace) -> ResultSource {
    match change {
        Change::PutAttr(ino, attr) => {
            batch.call(ValueType::Any, "SET", &keyspace.attr(*ino), [attr.encode()]);
        }
        Change::RemoveAttr(ino) => delete(batch, &keyspace.attr(*ino)),
        Change::TouchDir { ino, links, at } => batch.touch(&keyspace.attr(*ino), *links, *at),
        Change::PutEntry(dir, name, entry) => {
            let raw = Bytes::copy_from_slice(&entry.encode());
            put_field(batch, &keyspace.entries(*dir), copy(name.as_bytes()), raw);
        }
        Change::RemoveEntry(dir, name) => {
            remove_field(batch, &keyspace.entries(*dir), copy(name.as_bytes()));
        }
        Change::AddParent { ino, parent, count } => {
            let args = [text(parent), text(count)];
            batch.call(ValueType::Hash, "HINCRBY", &keyspace.parents(*ino), args);
        }
        Change::RemoveParents(ino) => delete(batch, &keyspace.parents(*ino)),
        Change::PutSymlink(ino, target) => {
            batch.call(ValueType::Any, "SET", &keyspace.symlink(*ino), [target.clone()]);
        }
        Change::RemoveSymlink(ino) => delete(batch, &keyspace.symlink(*ino)),
        Change::PutXattr(ino, name, value) => {
            put_field(batch, &keyspace.xattrs(*ino), copy(name.as_bytes()), value.clone());
        }
        Change::RemoveXattr(ino, name) => {
            remove_field(batch, &keyspace.xattrs(*ino), copy(name.as_bytes()));
        }
        Change::RemoveXattrs(ino) => delete(batch, &keyspace.xattrs(*ino)),

        Change::AppendSlices { ino, index, slices, if_present } => {
            return append(batch, &keyspace.chunk(*ino, *index), slices, *if_present);
        }
        Change::ReplaceSlices { ino, index, count, with } => {
            replace(batch, &keyspace.chunk(*ino, *index), *count, with);
        }
        Change::RemoveChunk { ino, index } => delete(batch, &keyspace.chunk(*ino, *index)),

        // A slice with one reference needs no record; usage was added first.
        Change::NewSlice(_) | Change::AddUsage { .. } => {}
        Change::TrackSlice(slice) => {
            put_field(batch, &keyspace.slice_refs(), text(keyspace::slice_field(*slice)), text(0));
        }
        Change::AddSliceRef { slice, by } => return add_slice_ref(batch, keyspace, *slice, *by),
        Change::RemoveSliceRef(slice) => {
            remove_field(batch, &keyspace.slice_refs(), text(keyspace::slice_field(*slice)));
        }
        Change::PutDelayed { id, at, slices } => {
            let raw = delayed_slices::encode(slices);
            if !raw.is_empty() {
                put_field(batch, &keyspace.delayed(), text(keyspace::delayed_field(*id, *at)), raw);
            }
        }
        Change::RemoveDelayed { id, at } => {
            remove_field(batch, &keyspace.delayed(), text(keyspace::delayed_field(*id, *at)));
        }

        Change::AddSustained(sid, ino) => {
            batch.call(ValueType::Set, "SADD", &keyspace.sustained(*sid), [text(ino)]);
        }
        Change::RemoveSustained(sid, ino) => {
            batch.call(ValueType::Set, "SREM", &keyspace.sustained(*sid), [text(ino)]);
        }
        Change::PutDeletedFile { ino, length, at } => {
            let member = keyspace::deleted_member(*ino, *length);
            batch.call(
                ValueType::SortedSet,
                "ZADD",
                &keyspace.deleted_files(),
                [text(at), text(member)],
            );
        }
        Change::RemoveDeletedFile { ino, length } => {
            let member = keyspace::deleted_member(*ino, *length);
            batch.call(ValueType::SortedSet, "ZREM", &keyspace.deleted_files(), [text(member)]);
        }
        Change::PutDetached(ino, at) => {
            batch.call(ValueType::SortedSet, "ZADD", &keyspace.detached(), [text(at), text(ino)]);
        }
        Change::RemoveDetached(ino) => {
            batch.call(ValueType::SortedSet, "ZREM", &keyspace.detached(), [text(ino)]);
        }

        Change::PutDirStat(ino, stat) => put_dir_stat(batch, keyspace, *ino, stat),
        Change::RemoveDirStat(ino) => {
            let stats = keyspace.dir_stats();
            for key in [&stats.length, &stats.space, &stats.inodes] {
                remove_field(batch, key, text(ino));
            }
        }
        Change::RemoveDirQuota(ino) => remove_dir_quota(batch, keyspace, *ino),

        Change::PutFlock { ino, sid, owner, kind } => {
            let key = keyspace.flocks(*ino);
            let letter = Bytes::copy_from_slice(&[kind.letter()]);
            put_field(batch, &key, text(keyspace::lock_field(*sid, *owner)), letter);
            add_to_locked_set(batch, keyspace, *sid, key);
        }
        Change::RemoveFlock { ino, sid, owner } => {
            unlock(
                batch,
                keyspace,
                *sid,
                &keyspace.flocks(*ino),
                keyspace::lock_field(*sid, *owner),
            );
        }
        Change::PutPlock { ino, sid, owner, ranges } => {
            let key = keyspace.plocks(*ino);
            let raw = lock::encode_ranges(ranges);
            put_field(batch, &key, text(keyspace::lock_field(*sid, *owner)), raw);
            add_to_locked_set(batch, keyspace, *sid, key);
        }
        Change::RemovePlock { ino, sid, owner } => {
            unlock(
                batch,
                keyspace,
                *sid,
                &keyspace.plocks(*ino),
                keyspace::lock_field(*sid, *owner),
            );
        }

        Change::Log(line) => {
            batch.call(ValueType::List, "RPUSH", &keyspace.change_log(), [text(line)]);
            batch.call(ValueType::Any, "INCR", &keyspace.last_log_version(), []);
        }
    }
    ResultSource::Zero
}

pub(in super::super) fn put_dir_stat(
    batch: &mut Batch,
    keyspace: &KeySpace,
    ino: Ino,
    stat: &DirStat,
) {
    let stats = keyspace.dir_stats();
    put_field(batch, &stats.length, text(ino), text(stat.length));
    put_field(batch, &stats.space, text(ino), text(stat.space));
    put_field(batch, &stats.inodes, text(ino), text(stat.inodes));
}

pub(in super::super) fn remove_dir_quota(batch: &mut Batch, keyspace: &KeySpace, ino: Ino) {
    let quotas = keyspace.quotas(QuotaKey::Dir(ino));
    for key in [&quotas.limits, &quotas.space, &quotas.inodes] {
        remove_field(batch, key, text(ino));
    }
}

fn add_usage(batch: &mut Batch, keyspace: &KeySpace, space: i64, inodes: i64) {
    for (counter, by) in [(Counter::UsedSpace, space), (Counter::TotalInodes, inodes)] {
        if by != 0 {
            batch.call(ValueType::Any, "INCRBY", &keyspace.counter(counter), [text(by)]);
        }
    }
}

fn append(batch: &mut Batch, key: &str, slices: &[Slice], if_present: bool) -> ResultSource {
    let push = if if_present { "RPUSHX" } else { "RPUSH" };
    let mut chunks = slices.chunks(MAX_ARGS).peekable();
    let index = batch.reports();
    while let Some(chunk) = chunks.next() {
        if chunks.peek().is_some() {
            batch.call(ValueType::List, push, key, records(chunk));
        } else {
            batch.report(ValueType::List, push, key, records(chunk));
        }
    }
    if slices.is_empty() {
        batch.report(ValueType::List, "LLEN", key, []);
    }
    ResultSource::Report { index, plus: 0 }
}

/// Removes the first `count` records and pushes `with` in their place, the last one first.
fn replace(batch: &mut Batch, key: &str, count: usize, with: &[Slice]) {
    batch.call(ValueType::List, "LTRIM", key, [text(count), text(-1)]);
    let reversed: Vec<Slice> = with.iter().rev().copied().collect();
    for chunk in reversed.chunks(MAX_ARGS) {
        batch.call(ValueType::List, "LPUSH", key, records(chunk));
    }
}

fn add_slice_ref(
    batch: &mut Batch,
    keyspace: &KeySpace,
    slice: SliceSize,
    by: i64,
) -> ResultSource {
    let index = batch.reports();
    let args = [text(keyspace::slice_field(slice)), text(by)];
    batch.report(ValueType::Hash, "HINCRBY", &keyspace.slice_refs(), args);
    // The stored number is one less than the count.
    ResultSource::Report { index, plus: 1 }
}

/// Adds a lock to the set of its session, where the cleanup of a dead session finds it. (The Go client
/// leaves out shared flocks, so those of a crashed client stay locked.)
fn add_to_locked_set(batch: &mut Batch, keyspace: &KeySpace, sid: Sid, lock: String) {
    batch.call(ValueType::Set, "SADD", &keyspace.locked(sid), [text(lock)]);
}

fn unlock(batch: &mut Batch, keyspace: &KeySpace, sid: Sid, lock: &str, holder: String) {
    remove_field(batch, lock, text(holder));
    batch.tidy_lock(lock, &keyspace.locked(sid), keyspace::lock_field_stem(sid));
}

fn put_field(batch: &mut Batch, key: &str, field: Bytes, value: Bytes) {
    batch.call(ValueType::Hash, "HSET", key, [field, value]);
}

fn remove_field(batch: &mut Batch, key: &str, field: Bytes) {
    batch.call(ValueType::Hash, "HDEL", key, [field]);
}

fn delete(batch: &mut Batch, key: &str) {
    batch.call(ValueType::Any, "DEL", key, []);
}

fn records(slices: &[Slice]) -> Vec<Bytes> {
    let raw = chunk::encode(slices);
    (0..slices.len()).map(|i| raw.slice(i * SLICE_LEN..(i + 1) * SLICE_LEN)).collect()
}

/// Returns a value as Redis stores numbers and names: as text.
pub(in super::super) fn text(value: impl std::fmt::Display) -> Bytes {
    value.to_string().into()
}

fn copy(raw: &[u8]) -> Bytes {
    Bytes::copy_from_slice(raw)
}
