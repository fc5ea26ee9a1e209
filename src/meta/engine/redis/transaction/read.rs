//! Reads: the commands for some keys, and the records in their replies.

use bytes::Bytes;
use redis::{Pipeline, Value};

use super::super::client::reply::{self, Replies};
use super::super::records::keyspace::{self, KeySpace};
use super::super::records::quota;
use super::super::scripts;
use super::guard::Guard;
use super::guess_cache::GuessCache;
use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::record::{
    AclRule, Attr, DirStat, Entry, Flock, LockKind, Plock, Quota, QuotaKey, SliceSize, chunk,
    delayed_slices, lock,
};
use crate::meta::{Ino, Name};

/// From this many keys on, one MGET or HMGET is cheaper than a command for each.
const MIN_BULK: usize = 8;

/// The commands for some keys, and how to interpret their replies.
pub(super) struct ReadRequest<'a> {
    keyspace: &'a KeySpace,
    keys: &'a [Key],
    /// Whether one MGET reads all attrs.
    bulk_attrs: bool,
    /// The directory whose entries one HMGET reads.
    bulk_dir: Option<Ino>,
}

impl<'a> ReadRequest<'a> {
    pub fn new(keyspace: &'a KeySpace, keys: &'a [Key]) -> Self {
        let attrs = keys.iter().filter(|key| matches!(key, Key::Attr(_))).count();
        let mut dirs = keys.iter().filter_map(|key| match key {
            Key::Entry(dir, _) => Some(*dir),
            _ => None,
        });
        let first = dirs.next();
        let bulk_dir = first.filter(|first| dirs.filter(|dir| dir == first).count() >= MIN_BULK);
        Self { keyspace, keys, bulk_attrs: attrs >= MIN_BULK, bulk_dir }
    }

    /// Returns whether one command reads this key together with others.
    fn is_bulk(&self, key: &Key) -> bool {
        match key {
            Key::Attr(_) => self.bulk_attrs,
            Key::Entry(dir, _) => self.bulk_dir == Some(*dir),
            _ => false,
        }
    }

    pub fn commands(&self) -> Pipeline {
        let mut pipe = Pipeline::with_capacity(self.keys.len());
        if self.bulk_attrs {
            pipe.cmd("MGET");
            for key in self.keys {
                if let Key::Attr(ino) = key {
                    pipe.arg(self.keyspace.attr(*ino));
                }
            }
        }
        if let Some(dir) = self.bulk_dir {
            pipe.cmd("HMGET").arg(self.keyspace.entries(dir));
            for key in self.keys {
                if let Key::Entry(of, name) = key
                    && *of == dir
                {
                    pipe.arg(name.as_bytes());
                }
            }
        }
        for key in self.keys {
            if !self.is_bulk(key) {
                add_commands(&mut pipe, self.keyspace, key);
            }
        }
        pipe
    }

    /// Returns the records in the order of the keys, and adds what they were read from to `guards`.
    pub fn records(
        &self,
        mut replies: Replies,
        mut guards: Option<&mut Vec<Guard>>,
    ) -> Result<Vec<Record>> {
        let mut attrs =
            if self.bulk_attrs { replies.options("MGET")? } else { Vec::new() }.into_iter();
        let mut entries = match self.bulk_dir {
            Some(dir) => replies.options(&self.keyspace.entries(dir))?,
            None => Vec::new(),
        }
        .into_iter();
        let mut records = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            let mut add_guard = |guard| {
                if let Some(guards) = &mut guards {
                    guards.push(guard);
                }
            };
            let record = match key {
                Key::Attr(ino) if self.bulk_attrs => {
                    attr(self.keyspace.attr(*ino), attrs.next().flatten(), &mut add_guard)?
                }
                Key::Entry(dir, name) if self.is_bulk(key) => {
                    let (at, field) = (self.keyspace.entries(*dir), raw_name(name));
                    let raw = entries.next().flatten();
                    add_guard(Guard::Entry { key: at, field, raw: raw.clone() });
                    Record::Entry(raw.map(|raw| entry(self.keyspace, *dir, &raw)).transpose()?)
                }
                _ => record(self.keyspace, key, &mut replies, &mut add_guard)?,
            };
            records.push(record);
        }
        Ok(records)
    }
}

/// Returns what a key most likely holds: what this client read or wrote last. A name that is not
/// cached counts as free. None if there is no guess.
pub(super) fn guess(
    keyspace: &KeySpace,
    guesses: &GuessCache,
    key: &Key,
    guards: &mut Vec<Guard>,
) -> Option<Record> {
    match key {
        Key::Attr(ino) => Some(Record::Attr(Some(guess_attr(keyspace, guesses, *ino, guards)?))),
        Key::Place(ino) => {
            let key = keyspace.attr(*ino);
            let raw = guesses.attr(&key)?;
            let attr = Attr::decode(&raw).ok()?;
            guards.push(Guard::Place { key, raw: Some(raw) });
            Some(Record::Attr(Some(attr)))
        }
        Key::Entry(dir, name) => {
            Some(Record::Entry(guess_entry(keyspace, guesses, *dir, name, guards).ok()?))
        }
        Key::Lookup(dir, name) => {
            let Some(entry) = guess_entry(keyspace, guesses, *dir, name, guards).ok()? else {
                return Some(Record::Lookup(None));
            };
            let attr = Some(guess_attr(keyspace, guesses, entry.ino, guards)?);
            Some(Record::Lookup(Some(Found { entry, attr })))
        }
        _ => None,
    }
}

fn guess_attr(
    keyspace: &KeySpace,
    guesses: &GuessCache,
    ino: Ino,
    guards: &mut Vec<Guard>,
) -> Option<Attr> {
    let key = keyspace.attr(ino);
    let raw = guesses.attr(&key)?;
    let attr = Attr::decode(&raw).ok()?;
    guards.push(Guard::Attr { key, raw: Some(raw) });
    Some(attr)
}

fn guess_entry(
    keyspace: &KeySpace,
    guesses: &GuessCache,
    dir: Ino,
    name: &Name,
    guards: &mut Vec<Guard>,
) -> Result<Option<Entry>> {
    let (key, field) = (keyspace.entries(dir), raw_name(name));
    let raw = guesses.entry(&key, &field);
    let entry = raw.as_ref().map(|raw| Entry::decode(raw)).transpose()?;
    guards.push(Guard::Entry { key, field, raw });
    Ok(entry)
}

fn add_commands(pipe: &mut Pipeline, keyspace: &KeySpace, key: &Key) {
    match key {
        Key::Attr(ino) | Key::Place(ino) => pipe.cmd("GET").arg(keyspace.attr(*ino)),
        Key::Entry(dir, name) => pipe.cmd("HGET").arg(keyspace.entries(*dir)).arg(name.as_bytes()),
        Key::Lookup(dir, name) => {
            let mut cmd = scripts::LOOKUP.call(&[keyspace.entries(*dir)]);
            cmd.arg(name.as_bytes()).arg(keyspace.attr_stem());
            pipe.add_command(cmd)
        }
        Key::HasEntries(dir) => pipe.cmd("HLEN").arg(keyspace.entries(*dir)),
        Key::Chunk(ino, index) => {
            pipe.cmd("LRANGE").arg(keyspace.chunk(*ino, *index)).arg(0).arg(-1)
        }
        Key::Symlink(ino) => pipe.cmd("GET").arg(keyspace.symlink(*ino)),
        Key::Xattr(ino, name) => pipe.cmd("HGET").arg(keyspace.xattrs(*ino)).arg(name.as_bytes()),
        Key::Xattrs(ino) => pipe.cmd("HGETALL").arg(keyspace.xattrs(*ino)),
        Key::Parents(ino) => pipe.cmd("HGETALL").arg(keyspace.parents(*ino)),
        Key::Flocks(ino) => pipe.cmd("HGETALL").arg(keyspace.flocks(*ino)),
        Key::Plocks(ino) => pipe.cmd("HGETALL").arg(keyspace.plocks(*ino)),
        Key::Sustained(sid, ino) => pipe.cmd("SISMEMBER").arg(keyspace.sustained(*sid)).arg(ino.0),
        Key::SliceRef(id, size) => pipe
            .cmd("HGET")
            .arg(keyspace.slice_refs())
            .arg(keyspace::slice_field(SliceSize { id: *id, size: *size })),
        Key::Delayed(id, at) => {
            pipe.cmd("HGET").arg(keyspace.delayed()).arg(keyspace::delayed_field(*id, *at))
        }
        Key::DirStat(ino) => {
            let stats = keyspace.dir_stats();
            pipe.cmd("HGET").arg(stats.length).arg(ino.0);
            pipe.cmd("HGET").arg(stats.space).arg(ino.0);
            pipe.cmd("HGET").arg(stats.inodes).arg(ino.0)
        }
        Key::Quota(key) => {
            let (quotas, field) = (keyspace.quotas(*key), keyspace::quota_field(*key));
            pipe.cmd("HGET").arg(quotas.limits).arg(&field);
            pipe.cmd("HGET").arg(quotas.space).arg(&field);
            pipe.cmd("HGET").arg(quotas.inodes).arg(&field)
        }
        Key::Acl(id) => pipe.cmd("HGET").arg(keyspace.acl()).arg(*id),
    };
}

type AddGuard<'a> = &'a mut dyn FnMut(Guard);

fn record(
    keyspace: &KeySpace,
    key: &Key,
    replies: &mut Replies,
    add_guard: AddGuard<'_>,
) -> Result<Record> {
    Ok(match key {
        Key::Attr(ino) => {
            let at = keyspace.attr(*ino);
            let raw = replies.bytes(&at)?;
            attr(at, raw, add_guard)?
        }
        Key::Place(ino) => {
            let key = keyspace.attr(*ino);
            let raw = replies.bytes(&key)?;
            let attr = raw.as_ref().map(|raw| reply::at(&key, Attr::decode(raw))).transpose()?;
            add_guard(Guard::Place { key, raw });
            Record::Attr(attr)
        }
        Key::Entry(dir, name) => {
            let (key, field) = (keyspace.entries(*dir), raw_name(name));
            let raw = replies.bytes(&key)?;
            add_guard(Guard::Entry { key, field, raw: raw.clone() });
            Record::Entry(raw.map(|raw| entry(keyspace, *dir, &raw)).transpose()?)
        }
        Key::Lookup(dir, name) => Record::Lookup(lookup(keyspace, *dir, name, replies, add_guard)?),
        Key::HasEntries(dir) => {
            let key = keyspace.entries(*dir);
            let any = replies.int(&key)? != 0;
            add_guard(Guard::Emptiness { key, empty: !any });
            Record::HasEntries(any)
        }
        Key::Chunk(ino, index) => {
            let key = keyspace.chunk(*ino, *index);
            let raw: Bytes = replies.list(&key)?.concat().into();
            let slices = reply::at(&key, chunk::decode(&raw))?;
            add_guard(Guard::Chunk { key, raw });
            Record::Chunk(slices)
        }
        Key::Symlink(ino) => {
            let key = keyspace.symlink(*ino);
            let raw = replies.bytes(&key)?;
            add_guard(Guard::Value { key, raw: raw.clone() });
            Record::Symlink(raw)
        }
        Key::Xattr(ino, name) => {
            Record::Xattr(field(replies, keyspace.xattrs(*ino), raw_name(name), add_guard)?)
        }
        Key::Xattrs(ino) => {
            let (_, pairs) = hash(replies, keyspace.xattrs(*ino), add_guard)?;
            Record::Xattrs(
                pairs.into_iter().map(|(name, raw)| (Name::unchecked(name), raw)).collect(),
            )
        }
        Key::Parents(ino) => {
            let (key, pairs) = hash(replies, keyspace.parents(*ino), add_guard)?;
            Record::Parents(parents(&key, &pairs)?)
        }
        Key::Flocks(ino) => {
            let (key, pairs) = hash(replies, keyspace.flocks(*ino), add_guard)?;
            Record::Flocks(flocks(&key, &pairs)?)
        }
        Key::Plocks(ino) => {
            let (key, pairs) = hash(replies, keyspace.plocks(*ino), add_guard)?;
            Record::Plocks(plocks(&key, &pairs)?)
        }
        Key::Sustained(sid, ino) => {
            let key = keyspace.sustained(*sid);
            let is = replies.int(&key)? != 0;
            add_guard(Guard::Member { key, member: ino.to_string(), is });
            Record::Sustained(is)
        }
        Key::SliceRef(id, size) => {
            let slice = keyspace::slice_field(SliceSize { id: *id, size: *size });
            let key = keyspace.slice_refs();
            let raw = field(replies, key.clone(), slice.into(), add_guard)?;
            // The stored number is one less than the count; a count of one is not stored.
            Record::SliceRef(raw.map_or(Ok(0), |raw| reply::number(&raw, &key))? + 1)
        }
        Key::Delayed(id, at) => {
            let key = keyspace.delayed();
            let list = keyspace::delayed_field(*id, *at);
            let raw = field(replies, key.clone(), list.into(), add_guard)?;
            Record::Delayed(reply::at(&key, delayed_slices::decode(&raw.unwrap_or_default()))?)
        }
        Key::DirStat(ino) => Record::DirStat(dir_stat(keyspace, *ino, replies, add_guard)?),
        Key::Quota(key) => Record::Quota(quota(keyspace, *key, replies, add_guard)?),
        Key::Acl(id) => {
            let key = keyspace.acl();
            let raw = field(replies, key.clone(), id.to_string().into(), add_guard)?;
            let rule = raw.map(|raw| reply::at(&format!("{key} {id}"), AclRule::decode(&raw)));
            Record::Acl(rule.transpose()?)
        }
    })
}

fn attr(key: String, raw: Option<Bytes>, add_guard: AddGuard<'_>) -> Result<Record> {
    let attr = raw.as_ref().map(|raw| reply::at(&key, Attr::decode(raw))).transpose()?;
    add_guard(Guard::Attr { key, raw });
    Ok(Record::Attr(attr))
}

fn entry(keyspace: &KeySpace, dir: Ino, raw: &[u8]) -> Result<Entry> {
    reply::at(&keyspace.entries(dir), Entry::decode(raw))
}

fn lookup(
    keyspace: &KeySpace,
    dir: Ino,
    name: &Name,
    replies: &mut Replies,
    add_guard: AddGuard<'_>,
) -> Result<Option<Found>> {
    let key = keyspace.entries(dir);
    let (raw_entry, raw_attr) = match replies.value(&key)? {
        Value::Nil => (None, None),
        value => {
            let mut parts = reply::list(value, &key)?.into_iter();
            (parts.next().flatten(), parts.next().flatten())
        }
    };
    add_guard(Guard::Entry { key, field: raw_name(name), raw: raw_entry.clone() });
    let Some(raw_entry) = raw_entry else { return Ok(None) };
    let entry = entry(keyspace, dir, &raw_entry)?;
    let Record::Attr(attr) = attr(keyspace.attr(entry.ino), raw_attr, add_guard)? else {
        return Ok(None);
    };
    Ok(Some(Found { entry, attr }))
}

fn dir_stat(
    keyspace: &KeySpace,
    ino: Ino,
    replies: &mut Replies,
    add_guard: AddGuard<'_>,
) -> Result<Option<DirStat>> {
    let stats = keyspace.dir_stats();
    let mut part = |key: String| {
        let raw = field(replies, key.clone(), ino.to_string().into(), add_guard)?;
        raw.map(|raw| reply::number(&raw, &key)).transpose()
    };
    let parts = (part(stats.length)?, part(stats.space)?, part(stats.inodes)?);
    let (Some(length), Some(space), Some(inodes)) = parts else { return Ok(None) };
    Ok(Some(DirStat { length, space, inodes }))
}

fn quota(
    keyspace: &KeySpace,
    key: QuotaKey,
    replies: &mut Replies,
    add_guard: AddGuard<'_>,
) -> Result<Option<Quota>> {
    let quotas = keyspace.quotas(key);
    let mut part =
        |hash: &str| field(replies, hash.to_owned(), keyspace::quota_field(key).into(), add_guard);
    let (limits, space, inodes) =
        (part(&quotas.limits)?, part(&quotas.space)?, part(&quotas.inodes)?);
    quota::from_stored(keyspace, key, limits.as_deref(), space.as_deref(), inodes.as_deref())
}

fn parents(key: &str, pairs: &[(Bytes, Bytes)]) -> Result<Vec<(Ino, i64)>> {
    let mut parents = Vec::with_capacity(pairs.len());
    for (ino, count) in pairs {
        let (ino, count) = (Ino(reply::id(ino, key)?), reply::number(count, key)?);
        if count > 0 {
            parents.push((ino, count));
        }
    }
    Ok(parents)
}

pub(in super::super) fn flocks(key: &str, pairs: &[(Bytes, Bytes)]) -> Result<Vec<Flock>> {
    let read = |(holder, raw): &(Bytes, Bytes)| {
        let (sid, owner) =
            keyspace::parse_lock_field(holder).ok_or_else(|| unreadable_field(key, holder))?;
        let letter = raw.first().copied().unwrap_or_default();
        Ok(Flock { sid, owner, kind: reply::at(key, LockKind::from_letter(letter))? })
    };
    pairs.iter().map(read).collect()
}

pub(in super::super) fn plocks(key: &str, pairs: &[(Bytes, Bytes)]) -> Result<Vec<Plock>> {
    let read = |(holder, raw): &(Bytes, Bytes)| {
        let (sid, owner) =
            keyspace::parse_lock_field(holder).ok_or_else(|| unreadable_field(key, holder))?;
        Ok(Plock { sid, owner, ranges: reply::at(key, lock::decode_ranges(raw))? })
    };
    pairs.iter().map(read).collect()
}

fn field(
    replies: &mut Replies,
    key: String,
    field: Bytes,
    add_guard: AddGuard<'_>,
) -> Result<Option<Bytes>> {
    let raw = replies.bytes(&key)?;
    add_guard(Guard::Field { key, field, raw: raw.clone() });
    Ok(raw)
}

fn hash(
    replies: &mut Replies,
    key: String,
    add_guard: AddGuard<'_>,
) -> Result<(String, Vec<(Bytes, Bytes)>)> {
    let pairs = replies.pairs(&key)?;
    add_guard(Guard::Hash { key: key.clone(), pairs: pairs.clone() });
    Ok((key, pairs))
}

fn raw_name(name: &Name) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn unreadable_field(key: &str, field: &[u8]) -> Error {
    Error::damaged(key, format!("unreadable field {:?}", String::from_utf8_lossy(field)))
}
