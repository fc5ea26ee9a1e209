//! Guards: what was read, byte for byte, to be compared at the commit.

use std::collections::HashMap;

use bytes::Bytes;

use super::super::{Change, CommitError};
use super::batch::Batch;
use super::fault::engine;
use super::names::Names;
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
    /// The attr of a directory, of which only what makes it a place matters.
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

/// From this many on, values are compared by one command.
const MANY: usize = 8;

/// Values and fields that are there, and values that are not, if there are many of them: one command
/// compares them all.
struct Many<'a> {
    values: Vec<(&'a str, &'a Bytes)>,
    absent: Vec<&'a str>,
    fields: HashMap<&'a str, Vec<(&'a Bytes, &'a Bytes)>>,
}

impl<'a> Many<'a> {
    fn among(guards: &'a [Guard]) -> Self {
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
        if values.len() < MANY {
            values.clear();
        }
        if absent.len() < MANY {
            absent.clear();
        }
        fields.retain(|_, fields| fields.len() >= MANY);
        Self { values, absent, fields }
    }

    fn holds(&self, guard: &Guard) -> bool {
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

    fn add(&self, batch: &mut Batch) {
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

/// Adds the guards of a plan. A chunk must be as it was read; if the plan replaces its first
/// records, only those must be.
pub(super) fn add(
    batch: &mut Batch,
    guards: &[Guard],
    changes: &[Change],
    names: &Names,
    place: &str,
) -> Result<(), CommitError> {
    let mut replaced: HashMap<String, usize> = HashMap::new();
    for change in changes {
        if let Change::ReplaceSlices { ino, index, count, .. } = change {
            replaced.insert(names.chunk(*ino, *index), *count);
        }
    }
    let many = Many::among(guards);
    many.add(batch);
    for guard in guards.iter().filter(|guard| !many.holds(guard)) {
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

/// A plan that replaces records blindly would lose those of others.
fn unread(place: &str, key: &str, count: usize) -> CommitError {
    let what = format!("the plan replaces {count} records of {key} that it did not read");
    CommitError::Failed(engine(place, what))
}
