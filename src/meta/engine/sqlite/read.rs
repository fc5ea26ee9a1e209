//! Reading records: which rows each kind of record consists of.

use std::collections::HashMap;

use super::db::Db;
use super::errors::DbResult;
use super::tables::{acl, chunk, entry, lock, node, session, slice, usage, xattr};
use crate::meta::Ino;
use crate::meta::engine::{Key, Record};
use crate::meta::record::Attr;

/// This many attrs or more are read by one statement.
const MANY: usize = 4;

/// Returns the records of `keys`, in their order. The caller provides one snapshot for all of them.
pub fn records(db: &Db, keys: &[Key]) -> DbResult<Vec<Record>> {
    let inos: Vec<Ino> = keys.iter().filter_map(attr_key).collect();
    if inos.len() < MANY {
        return keys.iter().map(|key| record(db, key)).collect();
    }
    let attrs: HashMap<Ino, Attr> = node::attrs(db, &inos)?;
    keys.iter()
        .map(|key| match attr_key(key) {
            Some(ino) => Ok(Record::Attr(attrs.get(&ino).cloned())),
            None => record(db, key),
        })
        .collect()
}

fn attr_key(key: &Key) -> Option<Ino> {
    match key {
        Key::Attr(ino) | Key::Place(ino) => Some(*ino),
        _ => None,
    }
}

fn record(db: &Db, key: &Key) -> DbResult<Record> {
    Ok(match key {
        Key::Attr(ino) | Key::Place(ino) => Record::Attr(node::attr(db, *ino)?),
        Key::Entry(dir, name) => Record::Entry(entry::entry(db, *dir, name)?),
        Key::Lookup(dir, name) => Record::Lookup(entry::lookup(db, *dir, name)?),
        Key::HasEntries(dir) => Record::HasEntries(entry::has_entries(db, *dir)?),
        Key::Chunk(ino, index) => Record::Chunk(chunk::slices(db, *ino, *index)?),
        Key::Symlink(ino) => Record::Symlink(xattr::symlink(db, *ino)?),
        Key::Xattr(ino, name) => Record::Xattr(xattr::xattr(db, *ino, name)?),
        Key::Xattrs(ino) => Record::Xattrs(xattr::xattrs(db, *ino)?),
        Key::Parents(ino) => Record::Parents(entry::parents(db, *ino)?),
        Key::Flocks(ino) => Record::Flocks(lock::flocks(db, *ino)?),
        Key::Plocks(ino) => Record::Plocks(lock::plocks(db, *ino)?),
        Key::Sustained(sid, ino) => Record::Sustained(session::sustains(db, *sid, *ino)?),
        Key::SliceRef(id, _) => Record::SliceRef(slice::refs(db, *id)?),
        Key::Delayed(id, at) => Record::Delayed(slice::delayed_list(db, *id, *at)?),
        Key::DirStat(ino) => Record::DirStat(usage::dir_stat(db, *ino)?),
        Key::Quota(key) => Record::Quota(usage::quota(db, *key)?),
        Key::Acl(id) => Record::Acl(acl::rule(db, *id)?),
    })
}
