//! Gathering: changes of many nodes of one kind as one command for all.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use super::super::Change;
use super::batch::{Batch, Kind, MOST_ARGS};
use super::names::{self, Names};
use super::write::text;
use crate::meta::record::SliceSize;
use crate::meta::{Ino, Name};

/// From this many changes on it is worth the effort.
const MANY: usize = 16;

/// What one command can do for many.
#[derive(Default)]
pub(super) struct Gathered {
    deleted: Vec<String>,
    set: Vec<(String, Bytes)>,
    /// Fields by the keys of their hashes.
    put: BTreeMap<String, Vec<Bytes>>,
    removed: BTreeMap<String, Vec<Bytes>>,
    /// Scores and members.
    deleted_files: Vec<Bytes>,
    done_files: Vec<Bytes>,
}

/// What a change writes. Two that write the same place must be made in their order.
#[derive(PartialEq, Eq, Hash)]
enum Place<'a> {
    Attr(Ino),
    Entry(Ino, &'a Name),
    Parents(Ino),
    Symlink(Ino),
    Xattrs(Ino),
    Chunk(Ino, u32),
    SliceRef(SliceSize),
    DeletedFile(Ino, u64),
}

impl Gathered {
    /// None if there is little to gather, or if the order of the changes matters.
    pub fn among(changes: &[Change], names: &Names) -> Option<Self> {
        if changes.len() < MANY {
            return None;
        }
        let mut places = HashSet::with_capacity(changes.len());
        let mut gathered = changes.iter().filter(|change| Self::has(change));
        if !gathered.all(|change| place(change).is_none_or(|place| places.insert(place))) {
            return None;
        }
        let mut others = changes.iter().filter(|change| !Self::has(change)).filter_map(place);
        if others.any(|place| places.contains(&place)) {
            return None;
        }
        let mut gathered = Self::default();
        for change in changes {
            gathered.take(change, names);
        }
        Some(gathered)
    }

    /// Whether the change is among what was gathered.
    pub fn has(change: &Change) -> bool {
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

    fn take(&mut self, change: &Change, names: &Names) {
        let raw = |name: &Name| name.clone().into_bytes();
        match change {
            Change::RemoveAttr(ino) => self.deleted.push(names.attr(*ino)),
            Change::RemoveXattrs(ino) => self.deleted.push(names.xattrs(*ino)),
            Change::RemoveParents(ino) => self.deleted.push(names.parents(*ino)),
            Change::RemoveSymlink(ino) => self.deleted.push(names.symlink(*ino)),
            Change::RemoveChunk { ino, index } => self.deleted.push(names.chunk(*ino, *index)),
            Change::PutAttr(ino, attr) => self.set.push((names.attr(*ino), attr.encode())),
            Change::PutEntry(dir, name, entry) => {
                let value = Bytes::copy_from_slice(&entry.encode());
                let fields = self.put.entry(names.entries(*dir)).or_default();
                fields.extend([raw(name), value]);
            }
            Change::RemoveEntry(dir, name) => {
                self.removed.entry(names.entries(*dir)).or_default().push(raw(name));
            }
            Change::RemoveSliceRef(slice) => {
                let fields = self.removed.entry(names.slice_refs()).or_default();
                fields.push(text(names::slice_field(*slice)));
            }
            Change::PutDeletedFile { ino, length, at } => {
                let member = text(names::deleted_member(*ino, *length));
                self.deleted_files.extend([text(at), member]);
            }
            Change::RemoveDeletedFile { ino, length } => {
                self.done_files.push(text(names::deleted_member(*ino, *length)));
            }
            _ => {}
        }
    }

    pub fn add(self, batch: &mut Batch, names: &Names) {
        for (key, fields) in &self.removed {
            batch.delete_fields(key, fields);
        }
        for (key, fields) in &self.put {
            all(batch, Kind::Hash, "HSET", key, fields);
        }
        let deleted = names.deleted_files();
        all(batch, Kind::SortedSet, "ZADD", &deleted, &self.deleted_files);
        all(batch, Kind::SortedSet, "ZREM", &deleted, &self.done_files);
        batch.set_all(&self.set);
        batch.delete_all(&self.deleted);
    }
}

/// What a change writes, if that can be gathered.
fn place(change: &Change) -> Option<Place<'_>> {
    Some(match change {
        Change::PutAttr(ino, _) | Change::RemoveAttr(ino) | Change::TouchDir { ino, .. } => {
            Place::Attr(*ino)
        }
        Change::PutEntry(dir, name, _) | Change::RemoveEntry(dir, name) => Place::Entry(*dir, name),
        Change::AddParent { ino, .. } | Change::RemoveParents(ino) => Place::Parents(*ino),
        Change::PutSymlink(ino, _) | Change::RemoveSymlink(ino) => Place::Symlink(*ino),
        Change::PutXattr(ino, ..) | Change::RemoveXattr(ino, _) | Change::RemoveXattrs(ino) => {
            Place::Xattrs(*ino)
        }
        Change::AppendSlices { ino, index, .. }
        | Change::ReplaceSlices { ino, index, .. }
        | Change::RemoveChunk { ino, index } => Place::Chunk(*ino, *index),
        Change::AddSliceRef { slice, .. }
        | Change::TrackSlice(slice)
        | Change::RemoveSliceRef(slice) => Place::SliceRef(*slice),
        Change::PutDeletedFile { ino, length, .. } | Change::RemoveDeletedFile { ino, length } => {
            Place::DeletedFile(*ino, *length)
        }
        _ => return None,
    })
}

/// As many commands as the arguments need. Pairs are not parted: their number is even.
fn all(batch: &mut Batch, kind: Kind, name: &'static str, key: &str, args: &[Bytes]) {
    for some in args.chunks(MOST_ARGS) {
        batch.call(kind, name, key, some.iter().cloned());
    }
}
