//! Guards: the exact bytes that were read, for the commit to compare.

use std::collections::HashMap;

use bytes::Bytes;

use super::super::client::server_error::engine_error;
use super::super::records::keyspace::KeySpace;
use super::batch::Batch;
use crate::meta::engine::{Change, CommitError};
use crate::meta::record::chunk::SLICE_LEN;

#[derive(Debug, Clone)]
pub(super) enum Guard {
    Value {
        key: String,
        raw: Option<Bytes>,
    },
    Attr {
        key: String,
        raw: Option<Bytes>,
    },
    /// The attr of a directory, apart from its times, link count and length.
    Place {
        key: String,
        raw: Option<Bytes>,
    },
    Field {
        key: String,
        field: Bytes,
        raw: Option<Bytes>,
    },
    /// A name in a directory.
    Entry {
        key: String,
        field: Bytes,
        raw: Option<Bytes>,
    },
    Emptiness {
        key: String,
        empty: bool,
    },
    Hash {
        key: String,
        pairs: Vec<(Bytes, Bytes)>,
    },
    /// All records of a chunk, joined.
    Chunk {
        key: String,
        raw: Bytes,
    },
    Member {
        key: String,
        member: String,
        is: bool,
    },
}

/// From this many on, one command compares all values.
const MIN_BULK: usize = 8;

/// Guards of the same kind, if there are many of them: one command compares them all.
struct BulkGuards<'a> {
    values: Vec<(&'a str, &'a Bytes)>,
    absent: Vec<&'a str>,
    fields: HashMap<&'a str, Vec<(&'a Bytes, &'a Bytes)>>,
}

impl<'a> BulkGuards<'a> {
    fn group(guards: &'a [Guard]) -> Self {
        let (mut values, mut absent) = (Vec::new(), Vec::new());
        let mut fields: HashMap<&str, Vec<_>> = HashMap::new();
        for guard in guards {
            match guard {
                Guard::Value { key, raw: Some(raw) } | Guard::Attr { key, raw: Some(raw) } => {
                    values.push((key.as_str(), raw));
                }
                Guard::Value { key, raw: None } | Guard::Attr { key, raw: None } => {
                    absent.push(key.as_str());
                }
                Guard::Field { key, field, raw: Some(raw) }
                | Guard::Entry { key, field, raw: Some(raw) } => {
                    fields.entry(key).or_default().push((field, raw));
                }
                _ => {}
            }
        }
        if values.len() < MIN_BULK {
            values.clear();
        }
        if absent.len() < MIN_BULK {
            absent.clear();
        }
        fields.retain(|_, fields| fields.len() >= MIN_BULK);
        Self { values, absent, fields }
    }

    fn contains(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Value { raw: Some(_), .. } | Guard::Attr { raw: Some(_), .. } => {
                !self.values.is_empty()
            }
            Guard::Value { raw: None, .. } | Guard::Attr { raw: None, .. } => {
                !self.absent.is_empty()
            }
            Guard::Field { key, raw: Some(_), .. } | Guard::Entry { key, raw: Some(_), .. } => {
                self.fields.contains_key(key.as_str())
            }
            _ => false,
        }
    }

    fn add_to(&self, batch: &mut Batch) {
        if !self.values.is_empty() {
            batch.guard_values(&self.values);
        }
        if !self.absent.is_empty() {
            batch.guard_absence(&self.absent);
        }
        for (key, fields) in &self.fields {
            batch.guard_fields(key, fields);
        }
    }
}

/// Adds the guards of a plan to the batch. A chunk must be unchanged; if the plan replaces its first
/// records, only those must be.
pub(super) fn add(
    batch: &mut Batch,
    guards: &[Guard],
    changes: &[Change],
    keyspace: &KeySpace,
    place: &str,
) -> Result<(), CommitError> {
    let mut replaced: HashMap<String, usize> = HashMap::new();
    for change in changes {
        if let Change::ReplaceSlices { ino, index, count, .. } = change {
            replaced.insert(keyspace.chunk(*ino, *index), *count);
        }
    }
    let bulk = BulkGuards::group(guards);
    bulk.add_to(batch);
    for guard in guards.iter().filter(|guard| !bulk.contains(guard)) {
        match guard {
            Guard::Value { key, raw } | Guard::Attr { key, raw } => {
                batch.guard_value(key, raw.as_ref());
            }
            Guard::Place { key, raw } => batch.guard_place(key, raw.as_ref()),
            Guard::Field { key, field, raw } | Guard::Entry { key, field, raw } => {
                batch.guard_field(key, field, raw.as_ref());
            }
            Guard::Emptiness { key, empty } => batch.guard_emptiness(key, *empty),
            Guard::Hash { key, pairs } => batch.guard_hash(key, pairs),
            Guard::Member { key, member, is } => batch.guard_member(key, member.clone(), *is),
            Guard::Chunk { key, raw } => match replaced.remove(key) {
                None => batch.guard_list(key, -1, raw.clone()),
                Some(0) => {}
                Some(count) if count * SLICE_LEN <= raw.len() => {
                    let last = i64::try_from(count).unwrap_or(i64::MAX) - 1;
                    batch.guard_list(key, last, raw.slice(..count * SLICE_LEN));
                }
                Some(count) => return Err(unread(place, key, count)),
            },
        }
    }
    match replaced.into_iter().next() {
        Some((key, count)) => Err(unread(place, &key, count)),
        None => Ok(()),
    }
}

/// A plan that replaces records it has not read would lose those of other clients.
fn unread(place: &str, key: &str, count: usize) -> CommitError {
    let what = format!("the plan replaces {count} records of {key} that it did not read");
    CommitError::Failed(engine_error(place, what))
}
