//! Writing: the commands that make a plan's changes.

use bytes::Bytes;

use super::super::Change;
use super::batch::{Batch, Kind, MOST_ARGS};
use super::gather::Gathered;
use super::names::{self, Names};
use crate::meta::record::chunk::{self, SLICE_LEN};
use crate::meta::record::{Counter, DirStat, QuotaKey, Slice, SliceSize, delayed_slices, lock};
use crate::meta::{Ino, Sid};

/// Where a change's number comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Receipt {
    Nothing,
    /// The result of a reporting command, and what to add to it.
    Report {
        index: usize,
        plus: i64,
    },
}

/// Adds the commands of all changes; answers where each change's number comes from.
pub(super) fn add(batch: &mut Batch, changes: &[Change], names: &Names) -> Vec<Receipt> {
    // Counters go first: theirs are the only commands that can fail on a value of the right type,
    // and nothing is applied yet then.
    let used = changes.iter().fold((0, 0), |sum: (i64, i64), change| match change {
        Change::AddUsage { space, inodes } => (sum.0 + space, sum.1 + inodes),
        _ => sum,
    });
    add_usage(batch, names, used.0, used.1);
    let Some(gathered) = Gathered::among(changes, names) else {
        return changes.iter().map(|change| add_one(batch, change, names)).collect();
    };
    let rest = |change| match change {
        change if Gathered::has(change) => Receipt::Nothing,
        change => add_one(batch, change, names),
    };
    let receipts = changes.iter().map(rest).collect();
    gathered.add(batch, names);
    receipts
}

#[expect(clippy::too_many_lines, reason = "one arm per change")]
fn add_one(batch: &mut Batch, change: &Change, names: &Names) -> Receipt {
    match change {
        Change::PutAttr(ino, attr) => {
            batch.call(Kind::Any, "SET", &names.attr(*ino), [attr.encode()]);
        }
        Change::RemoveAttr(ino) => delete(batch, &names.attr(*ino)),
        Change::TouchDir { ino, links, at } => batch.touch(&names.attr(*ino), *links, *at),
        Change::PutEntry(dir, name, entry) => {
            let raw = Bytes::copy_from_slice(&entry.encode());
            put_field(batch, &names.entries(*dir), copy(name.as_bytes()), raw);
        }
        Change::RemoveEntry(dir, name) => {
            remove_field(batch, &names.entries(*dir), copy(name.as_bytes()));
        }
        Change::AddParent { ino, parent, count } => {
            let args = [text(parent), text(count)];
            batch.call(Kind::Hash, "HINCRBY", &names.parents(*ino), args);
        }
        Change::RemoveParents(ino) => delete(batch, &names.parents(*ino)),
        Change::PutSymlink(ino, target) => {
            batch.call(Kind::Any, "SET", &names.symlink(*ino), [target.clone()]);
        }
        Change::RemoveSymlink(ino) => delete(batch, &names.symlink(*ino)),
        Change::PutXattr(ino, name, value) => {
            put_field(batch, &names.xattrs(*ino), copy(name.as_bytes()), value.clone());
        }
        Change::RemoveXattr(ino, name) => {
            remove_field(batch, &names.xattrs(*ino), copy(name.as_bytes()));
        }
        Change::RemoveXattrs(ino) => delete(batch, &names.xattrs(*ino)),

        Change::AppendSlices { ino, index, slices, if_present } => {
            return append(batch, &names.chunk(*ino, *index), slices, *if_present);
        }
        Change::ReplaceSlices { ino, index, count, with } => {
            replace(batch, &names.chunk(*ino, *index), *count, with);
        }
        Change::RemoveChunk { ino, index } => delete(batch, &names.chunk(*ino, *index)),

        // A slice with one reference needs no record; usage went first.
        Change::NewSlice(_) | Change::AddUsage { .. } => {}
        Change::TrackSlice(slice) => {
            put_field(batch, &names.slice_refs(), text(names::slice_field(*slice)), text(0));
        }
        Change::AddSliceRef { slice, by } => return add_slice_ref(batch, names, *slice, *by),
        Change::RemoveSliceRef(slice) => {
            remove_field(batch, &names.slice_refs(), text(names::slice_field(*slice)));
        }
        Change::PutDelayed { id, at, slices } => {
            let raw = delayed_slices::encode(slices);
            if !raw.is_empty() {
                put_field(batch, &names.delayed(), text(names::delayed_field(*id, *at)), raw);
            }
        }
        Change::RemoveDelayed { id, at } => {
            remove_field(batch, &names.delayed(), text(names::delayed_field(*id, *at)));
        }

        Change::AddSustained(sid, ino) => {
            batch.call(Kind::Set, "SADD", &names.sustained(*sid), [text(ino)]);
        }
        Change::RemoveSustained(sid, ino) => {
            batch.call(Kind::Set, "SREM", &names.sustained(*sid), [text(ino)]);
        }
        Change::PutDeletedFile { ino, length, at } => {
            let member = names::deleted_member(*ino, *length);
            batch.call(Kind::SortedSet, "ZADD", &names.deleted_files(), [text(at), text(member)]);
        }
        Change::RemoveDeletedFile { ino, length } => {
            let member = names::deleted_member(*ino, *length);
            batch.call(Kind::SortedSet, "ZREM", &names.deleted_files(), [text(member)]);
        }
        Change::PutDetached(ino, at) => {
            batch.call(Kind::SortedSet, "ZADD", &names.detached(), [text(at), text(ino)]);
        }
        Change::RemoveDetached(ino) => {
            batch.call(Kind::SortedSet, "ZREM", &names.detached(), [text(ino)]);
        }

        Change::PutDirStat(ino, stat) => put_dir_stat(batch, names, *ino, stat),
        Change::RemoveDirStat(ino) => {
            let stats = names.stats();
            for key in [&stats.length, &stats.space, &stats.inodes] {
                remove_field(batch, key, text(ino));
            }
        }
        Change::RemoveDirQuota(ino) => remove_dir_quota(batch, names, *ino),

        Change::PutFlock { ino, sid, owner, kind } => {
            let key = names.flocks(*ino);
            let letter = Bytes::copy_from_slice(&[kind.letter()]);
            put_field(batch, &key, text(names::lock_field(*sid, *owner)), letter);
            hold(batch, names, *sid, key);
        }
        Change::RemoveFlock { ino, sid, owner } => {
            unlock(batch, names, *sid, &names.flocks(*ino), names::lock_field(*sid, *owner));
        }
        Change::PutPlock { ino, sid, owner, ranges } => {
            let key = names.plocks(*ino);
            let raw = lock::encode_ranges(ranges);
            put_field(batch, &key, text(names::lock_field(*sid, *owner)), raw);
            hold(batch, names, *sid, key);
        }
        Change::RemovePlock { ino, sid, owner } => {
            unlock(batch, names, *sid, &names.plocks(*ino), names::lock_field(*sid, *owner));
        }

        Change::Log(line) => {
            batch.call(Kind::List, "RPUSH", &names.log(), [text(line)]);
            batch.call(Kind::Any, "INCR", &names.last_log(), []);
        }
    }
    Receipt::Nothing
}

pub(super) fn put_dir_stat(batch: &mut Batch, names: &Names, ino: Ino, stat: &DirStat) {
    let stats = names.stats();
    put_field(batch, &stats.length, text(ino), text(stat.length));
    put_field(batch, &stats.space, text(ino), text(stat.space));
    put_field(batch, &stats.inodes, text(ino), text(stat.inodes));
}

pub(super) fn remove_dir_quota(batch: &mut Batch, names: &Names, ino: Ino) {
    let quotas = names.quotas(QuotaKey::Dir(ino));
    for key in [&quotas.limits, &quotas.space, &quotas.inodes] {
        remove_field(batch, key, text(ino));
    }
}

fn add_usage(batch: &mut Batch, names: &Names, space: i64, inodes: i64) {
    for (counter, by) in [(Counter::UsedSpace, space), (Counter::TotalInodes, inodes)] {
        if by != 0 {
            batch.call(Kind::Any, "INCRBY", &names.counter(counter), [text(by)]);
        }
    }
}

fn append(batch: &mut Batch, key: &str, slices: &[Slice], if_present: bool) -> Receipt {
    let push = if if_present { "RPUSHX" } else { "RPUSH" };
    let mut pieces = slices.chunks(MOST_ARGS).peekable();
    let index = batch.reports();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_some() {
            batch.call(Kind::List, push, key, records(piece));
        } else {
            batch.report(Kind::List, push, key, records(piece));
        }
    }
    if slices.is_empty() {
        batch.report(Kind::List, "LLEN", key, []);
    }
    Receipt::Report { index, plus: 0 }
}

/// Takes the first `count` records off and puts `with` in their place, last one first.
fn replace(batch: &mut Batch, key: &str, count: usize, with: &[Slice]) {
    batch.call(Kind::List, "LTRIM", key, [text(count), text(-1)]);
    let reversed: Vec<Slice> = with.iter().rev().copied().collect();
    for piece in reversed.chunks(MOST_ARGS) {
        batch.call(Kind::List, "LPUSH", key, records(piece));
    }
}

fn add_slice_ref(batch: &mut Batch, names: &Names, slice: SliceSize, by: i64) -> Receipt {
    let index = batch.reports();
    let args = [text(names::slice_field(slice)), text(by)];
    batch.report(Kind::Hash, "HINCRBY", &names.slice_refs(), args);
    // What is stored is one less than the count.
    Receipt::Report { index, plus: 1 }
}

/// Every lock is remembered with its session, so that whoever cleans up after it finds it. (The Go
/// client forgets shared flocks here, and those of a crashed one stay.)
fn hold(batch: &mut Batch, names: &Names, sid: Sid, lock: String) {
    batch.call(Kind::Set, "SADD", &names.locked(sid), [text(lock)]);
}

fn unlock(batch: &mut Batch, names: &Names, sid: Sid, lock: &str, holder: String) {
    remove_field(batch, lock, text(holder));
    batch.tidy_lock(lock, &names.locked(sid), names::lock_field_stem(sid));
}

fn put_field(batch: &mut Batch, key: &str, field: Bytes, value: Bytes) {
    batch.call(Kind::Hash, "HSET", key, [field, value]);
}

fn remove_field(batch: &mut Batch, key: &str, field: Bytes) {
    batch.call(Kind::Hash, "HDEL", key, [field]);
}

fn delete(batch: &mut Batch, key: &str) {
    batch.call(Kind::Any, "DEL", key, []);
}

fn records(slices: &[Slice]) -> Vec<Bytes> {
    let raw = chunk::encode(slices);
    (0..slices.len()).map(|i| raw.slice(i * SLICE_LEN..(i + 1) * SLICE_LEN)).collect()
}

pub(super) fn text(value: impl std::fmt::Display) -> Bytes {
    value.to_string().into()
}

fn copy(raw: &[u8]) -> Bytes {
    Bytes::copy_from_slice(raw)
}
