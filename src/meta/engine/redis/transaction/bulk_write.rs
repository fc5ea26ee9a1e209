//! Bulk writes: one command for the changes of one kind to many nodes.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use super::super::records::keyspace::{self, KeySpace};
use super::batch::{Batch, MAX_ARGS, ValueType};
use super::write::text;
use crate::meta::engine::Change;
use crate::meta::record::SliceSize;
use crate::meta::{Ino, Name};

/// From this many changes on, grouping them is worth the effort.
const MIN_CHANGES: usize = 16;

/// Changes, grouped by the command that applies them.
#[derive(Default)]
pub(super) struct BulkWrite {
    deleted_keys: Vec<String>,
    values: Vec<(String, Bytes)>,
    /// Alternating fields and values, by the keys of their hashes.
    put_fields: BTreeMap<String, Vec<Bytes>>,
    removed_fields: BTreeMap<String, Vec<Bytes>>,
    /// Alternating scores and members.
    put_deleted_files: Vec<Bytes>,
    removed_deleted_files: Vec<Bytes>,
}

/// The record that a change writes. Changes to the same record must be applied in order.
#[derive(PartialEq, Eq, Hash)]
enum Target<'a> {
    Attr(Ino),
    Entry(Ino, &'a Name),
    Parents(Ino),
    Symlink(Ino),
    Xattrs(Ino),
    Chunk(Ino, u32),
    SliceRef(SliceSize),
    DeletedFile(Ino, u64),
}

impl BulkWrite {
    /// Groups the changes; none if there are few of them, or if their order matters.
    pub fn group(changes: &[Change], keyspace: &KeySpace) -> Option<Self> {
        if changes.len() < MIN_CHANGES {
            return None;
        }
        let mut targets = HashSet::with_capacity(changes.len());
        let mut grouped = changes.iter().filter(|change| Self::handles(change));
        if !grouped.all(|change| target(change).is_none_or(|target| targets.insert(target))) {
            return None;
        }
        let mut others = changes.iter().filter(|change| !Self::handles(change)).filter_map(target);
        if others.any(|target| targets.contains(&target)) {
            return None;
        }
        let mut bulk = Self::default();
        for change in changes {
            bulk.push(change, keyspace);
        }
        Some(bulk)
    }

    /// Returns whether changes of this kind are grouped.
    pub fn handles(change: &Change) -> bool {
        matches!(
            change,
            Change::PutAttr(..)
                | Change::RemoveAttr(_)
                | Change::RemoveXattrs(_)
                | Change::RemoveParents(_)
                | Change::RemoveSymlink(_)
                | Change::RemoveChunk { .. }
                | Change::PutEntry(..)
                | Change::RemoveEntry(..)
                | Change::PutDeletedFile { .. }
                | Change::RemoveDeletedFile { .. }
                | Change::RemoveSliceRef(_)
        )
    }

    fn push(&mut self, change: &Change, keyspace: &KeySpace) {
        let raw = |name: &Name| name.clone().into_bytes();
        match change {
            Change::RemoveAttr(ino) => self.deleted_keys.push(keyspace.attr(*ino)),
            Change::RemoveXattrs(ino) => self.deleted_keys.push(keyspace.xattrs(*ino)),
            Change::RemoveParents(ino) => self.deleted_keys.push(keyspace.parents(*ino)),
            Change::RemoveSymlink(ino) => self.deleted_keys.push(keyspace.symlink(*ino)),
            Change::RemoveChunk { ino, index } => {
                self.deleted_keys.push(keyspace.chunk(*ino, *index));
            }
            Change::PutAttr(ino, attr) => self.values.push((keyspace.attr(*ino), attr.encode())),
            Change::PutEntry(dir, name, entry) => {
                let value = Bytes::copy_from_slice(&entry.encode());
                let fields = self.put_fields.entry(keyspace.entries(*dir)).or_default();
                fields.extend([raw(name), value]);
            }
            Change::RemoveEntry(dir, name) => {
                self.removed_fields.entry(keyspace.entries(*dir)).or_default().push(raw(name));
            }
            Change::RemoveSliceRef(slice) => {
                let fields = self.removed_fields.entry(keyspace.slice_refs()).or_default();
                fields.push(text(keyspace::slice_field(*slice)));
            }
            Change::PutDeletedFile { ino, length, at } => {
                let member = text(keyspace::deleted_member(*ino, *length));
                self.put_deleted_files.extend([text(at), member]);
            }
            Change::RemoveDeletedFile { ino, length } => {
                self.removed_deleted_files.push(text(keyspace::deleted_member(*ino, *length)));
            }
            _ => {}
        }
    }

    /// Adds the commands to the batch.
    pub fn add_to(self, batch: &mut Batch, keyspace: &KeySpace) {
        for (key, fields) in &self.removed_fields {
            batch.delete_fields(key, fields);
        }
        for (key, fields) in &self.put_fields {
            call_in_chunks(batch, ValueType::Hash, "HSET", key, fields);
        }
        let deleted = keyspace.deleted_files();
        call_in_chunks(batch, ValueType::SortedSet, "ZADD", &deleted, &self.put_deleted_files);
        call_in_chunks(batch, ValueType::SortedSet, "ZREM", &deleted, &self.removed_deleted_files);
        batch.set_all(&self.values);
        batch.delete_all(&self.deleted_keys);
    }
}

/// Returns the record that a change writes, if grouped changes can write it too.
fn target(change: &Change) -> Option<Target<'_>> {
    Some(match change {
        Change::PutAttr(ino, _) | Change::RemoveAttr(ino) | Change::TouchDir { ino, .. } => {
            Target::Attr(*ino)
        }
        Change::PutEntry(dir, name, _) | Change::RemoveEntry(dir, name) => {
            Target::Entry(*dir, name)
        }
        Change::AddParent { ino, .. } | Change::RemoveParents(ino) => Target::Parents(*ino),
        Change::PutSymlink(ino, _) | Change::RemoveSymlink(ino) => Target::Symlink(*ino),
        Change::PutXattr(ino, ..) | Change::RemoveXattr(ino, _) | Change::RemoveXattrs(ino) => {
            Target::Xattrs(*ino)
        }
        Change::AppendSlices { ino, index, .. }
        | Change::ReplaceSlices { ino, index, .. }
        | Change::RemoveChunk { ino, index } => Target::Chunk(*ino, *index),
        Change::AddSliceRef { slice, .. }
        | Change::TrackSlice(slice)
        | Change::RemoveSliceRef(slice) => Target::SliceRef(*slice),
        Change::PutDeletedFile { ino, length, .. } | Change::RemoveDeletedFile { ino, length } => {
            Target::DeletedFile(*ino, *length)
        }
        _ => return None,
    })
}

/// Adds as many commands as the arguments need. No pair is split, since `MAX_ARGS` is even.
fn call_in_chunks(
    batch: &mut Batch,
    kind: ValueType,
    name: &'static str,
    key: &str,
    args: &[Bytes],
) {
    for some in args.chunks(MAX_ARGS) {
        batch.call(kind, name, key, some.iter().cloned());
    }
}
