//! Reading: what to ask for a key, and what the answers mean.

use bytes::Bytes;
use redis::{Pipeline, Value};

use super::super::{Found, Key, Record};
use super::guard::Guard;
use super::limits;
use super::names::{self, Names};
use super::recent::Recent;
use super::reply::{self, Replies};
use super::script;
use crate::error::{Error, Result};
use crate::meta::record::{
    AclRule, Attr, DirStat, Entry, Flock, LockKind, Plock, Quota, QuotaKey, SliceSize, chunk,
    delayed_slices, lock,
};
use crate::meta::{Ino, Name};

/// From this many attrs on, one MGET is cheaper than a GET each.
const MANY: usize = 8;

/// The commands for some keys, and how to read their answers.
pub(super) struct Question<'a> {
    names: &'a Names,
    keys: &'a [Key],
    bundled: bool,
    /// The directory whose entries are asked for by one command.
    listed: Option<Ino>,
}

impl<'a> Question<'a> {
    pub fn new(names: &'a Names, keys: &'a [Key]) -> Self {
        let attrs = keys.iter().filter(|key| matches!(key, Key::Attr(_))).count();
        let mut dirs = keys.iter().filter_map(|key| match key {
            Key::Entry(dir, _) => Some(*dir),
            _ => None,
        });
        let first = dirs.next();
        let listed = first.filter(|first| dirs.filter(|dir| dir == first).count() >= MANY);
        Self { names, keys, bundled: attrs >= MANY, listed }
    }

    /// Whether the key is asked for together with others.
    fn is_bundled(&self, key: &Key) -> bool {
        match key {
            Key::Attr(_) => self.bundled,
            Key::Entry(dir, _) => self.listed == Some(*dir),
            _ => false,
        }
    }

    pub fn commands(&self) -> Pipeline {
        let mut pipe = Pipeline::with_capacity(self.keys.len());
        if self.bundled {
            pipe.cmd("MGET");
            for key in self.keys {
                if let Key::Attr(ino) = key {
                    pipe.arg(self.names.attr(*ino));
                }
            }
        }
        if let Some(dir) = self.listed {
            pipe.cmd("HMGET").arg(self.names.entries(dir));
            for key in self.keys {
                if let Key::Entry(of, name) = key
                    && *of == dir
                {
                    pipe.arg(name.as_bytes());
                }
            }
        }
        for key in self.keys {
            if !self.is_bundled(key) {
                ask(&mut pipe, self.names, key);
            }
        }
        pipe
    }

    /// The records in order; `guards` is told what they were read from.
    pub fn answers(
        &self,
        mut replies: Replies,
        mut guards: Option<&mut Vec<Guard>>,
    ) -> Result<Vec<Record>> {
        let mut attrs =
            if self.bundled { replies.options("MGET")? } else { Vec::new() }.into_iter();
        let mut entries = match self.listed {
            Some(dir) => replies.options(&self.names.entries(dir))?,
            None => Vec::new(),
        }
        .into_iter();
        let mut records = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            let mut note = |guard| {
                if let Some(guards) = &mut guards {
                    guards.push(guard);
                }
            };
            let record = match key {
                Key::Attr(ino) if self.bundled => {
                    attr(self.names.attr(*ino), attrs.next().flatten(), &mut note)?
                }
                Key::Entry(dir, name) if self.is_bundled(key) => {
                    let (at, field) = (self.names.entries(*dir), raw_name(name));
                    let raw = entries.next().flatten();
                    note(Guard::Entry { key: at, field, raw: raw.clone() });
                    Record::Entry(raw.map(|raw| entry(self.names, *dir, &raw)).transpose()?)
                }
                _ => answer(self.names, key, &mut replies, &mut note)?,
            };
            records.push(record);
        }
        Ok(records)
    }
}

/// What a key most likely holds: what this client saw last, and where it saw nothing a name is free.
/// None where there is no telling.
pub(super) fn guess(
    names: &Names,
    recent: &Recent,
    key: &Key,
    guards: &mut Vec<Guard>,
) -> Option<Record> {
    match key {
        Key::Attr(ino) => Some(Record::Attr(Some(guess_attr(names, recent, *ino, guards)?))),
        Key::Place(ino) => {
            let key = names.attr(*ino);
            let raw = recent.attr(&key)?;
            let attr = Attr::decode(&raw).ok()?;
            guards.push(Guard::Place { key, raw: Some(raw) });
            Some(Record::Attr(Some(attr)))
        }
        Key::Entry(dir, name) => {
            Some(Record::Entry(guess_entry(names, recent, *dir, name, guards).ok()?))
        }
        Key::Lookup(dir, name) => {
            let Some(entry) = guess_entry(names, recent, *dir, name, guards).ok()? else {
                return Some(Record::Lookup(None));
            };
            let attr = Some(guess_attr(names, recent, entry.ino, guards)?);
            Some(Record::Lookup(Some(Found { entry, attr })))
        }
        _ => None,
    }
}

fn guess_attr(names: &Names, recent: &Recent, ino: Ino, guards: &mut Vec<Guard>) -> Option<Attr> {
    let key = names.attr(ino);
    let raw = recent.attr(&key)?;
    let attr = Attr::decode(&raw).ok()?;
    guards.push(Guard::Attr { key, raw: Some(raw) });
    Some(attr)
}

fn guess_entry(
    names: &Names,
    recent: &Recent,
    dir: Ino,
    name: &Name,
    guards: &mut Vec<Guard>,
) -> Result<Option<Entry>> {
    let (key, field) = (names.entries(dir), raw_name(name));
    let raw = recent.entry(&key, &field);
    let entry = raw.as_ref().map(|raw| Entry::decode(raw)).transpose()?;
    guards.push(Guard::Entry { key, field, raw });
    Ok(entry)
}

fn ask(pipe: &mut Pipeline, names: &Names, key: &Key) {
    match key {
        Key::Attr(ino) | Key::Place(ino) => pipe.cmd("GET").arg(names.attr(*ino)),
        Key::Entry(dir, name) => pipe.cmd("HGET").arg(names.entries(*dir)).arg(name.as_bytes()),
        Key::Lookup(dir, name) => {
            let mut cmd = script::LOOKUP.call(&[names.entries(*dir)]);
            cmd.arg(name.as_bytes()).arg(names.attr_stem());
            pipe.add_command(cmd)
        }
        Key::HasEntries(dir) => pipe.cmd("HLEN").arg(names.entries(*dir)),
        Key::Chunk(ino, index) => pipe.cmd("LRANGE").arg(names.chunk(*ino, *index)).arg(0).arg(-1),
        Key::Symlink(ino) => pipe.cmd("GET").arg(names.symlink(*ino)),
        Key::Xattr(ino, name) => pipe.cmd("HGET").arg(names.xattrs(*ino)).arg(name.as_bytes()),
        Key::Xattrs(ino) => pipe.cmd("HGETALL").arg(names.xattrs(*ino)),
        Key::Parents(ino) => pipe.cmd("HGETALL").arg(names.parents(*ino)),
        Key::Flocks(ino) => pipe.cmd("HGETALL").arg(names.flocks(*ino)),
        Key::Plocks(ino) => pipe.cmd("HGETALL").arg(names.plocks(*ino)),
        Key::Sustained(sid, ino) => pipe.cmd("SISMEMBER").arg(names.sustained(*sid)).arg(ino.0),
        Key::SliceRef(id, size) => pipe
            .cmd("HGET")
            .arg(names.slice_refs())
            .arg(names::slice_field(SliceSize { id: *id, size: *size })),
        Key::Delayed(id, at) => {
            pipe.cmd("HGET").arg(names.delayed()).arg(names::delayed_field(*id, *at))
        }
        Key::DirStat(ino) => {
            let stats = names.stats();
            pipe.cmd("HGET").arg(stats.length).arg(ino.0);
            pipe.cmd("HGET").arg(stats.space).arg(ino.0);
            pipe.cmd("HGET").arg(stats.inodes).arg(ino.0)
        }
        Key::Quota(key) => {
            let (quotas, field) = (names.quotas(*key), names::quota_field(*key));
            pipe.cmd("HGET").arg(quotas.limits).arg(&field);
            pipe.cmd("HGET").arg(quotas.space).arg(&field);
            pipe.cmd("HGET").arg(quotas.inodes).arg(&field)
        }
        Key::Acl(id) => pipe.cmd("HGET").arg(names.acl()).arg(*id),
    };
}

type Note<'a> = &'a mut dyn FnMut(Guard);

fn answer(names: &Names, key: &Key, replies: &mut Replies, note: Note<'_>) -> Result<Record> {
    Ok(match key {
        Key::Attr(ino) => {
            let at = names.attr(*ino);
            let raw = replies.bytes(&at)?;
            attr(at, raw, note)?
        }
        Key::Place(ino) => {
            let key = names.attr(*ino);
            let raw = replies.bytes(&key)?;
            let attr = raw.as_ref().map(|raw| reply::at(&key, Attr::decode(raw))).transpose()?;
            note(Guard::Place { key, raw });
            Record::Attr(attr)
        }
        Key::Entry(dir, name) => {
            let (key, field) = (names.entries(*dir), raw_name(name));
            let raw = replies.bytes(&key)?;
            note(Guard::Entry { key, field, raw: raw.clone() });
            Record::Entry(raw.map(|raw| entry(names, *dir, &raw)).transpose()?)
        }
        Key::Lookup(dir, name) => Record::Lookup(lookup(names, *dir, name, replies, note)?),
        Key::HasEntries(dir) => {
            let key = names.entries(*dir);
            let any = replies.int(&key)? != 0;
            note(Guard::Emptiness { key, empty: !any });
            Record::HasEntries(any)
        }
        Key::Chunk(ino, index) => {
            let key = names.chunk(*ino, *index);
            let raw: Bytes = replies.list(&key)?.concat().into();
            let slices = reply::at(&key, chunk::decode(&raw))?;
            note(Guard::Chunk { key, raw });
            Record::Chunk(slices)
        }
        Key::Symlink(ino) => {
            let key = names.symlink(*ino);
            let raw = replies.bytes(&key)?;
            note(Guard::Value { key, raw: raw.clone() });
            Record::Symlink(raw)
        }
        Key::Xattr(ino, name) => {
            Record::Xattr(field(replies, names.xattrs(*ino), raw_name(name), note)?)
        }
        Key::Xattrs(ino) => {
            let (_, pairs) = hash(replies, names.xattrs(*ino), note)?;
            Record::Xattrs(
                pairs.into_iter().map(|(name, raw)| (Name::unchecked(name), raw)).collect(),
            )
        }
        Key::Parents(ino) => {
            let (key, pairs) = hash(replies, names.parents(*ino), note)?;
            Record::Parents(parents(&key, &pairs)?)
        }
        Key::Flocks(ino) => {
            let (key, pairs) = hash(replies, names.flocks(*ino), note)?;
            Record::Flocks(flocks(&key, &pairs)?)
        }
        Key::Plocks(ino) => {
            let (key, pairs) = hash(replies, names.plocks(*ino), note)?;
            Record::Plocks(plocks(&key, &pairs)?)
        }
        Key::Sustained(sid, ino) => {
            let key = names.sustained(*sid);
            let is = replies.int(&key)? != 0;
            note(Guard::Member { key, member: ino.to_string(), is });
            Record::Sustained(is)
        }
        Key::SliceRef(id, size) => {
            let slice = names::slice_field(SliceSize { id: *id, size: *size });
            let key = names.slice_refs();
            let raw = field(replies, key.clone(), slice.into(), note)?;
            // What is stored is one less than the count, and nothing for one.
            Record::SliceRef(raw.map_or(Ok(0), |raw| reply::number(&raw, &key))? + 1)
        }
        Key::Delayed(id, at) => {
            let key = names.delayed();
            let list = names::delayed_field(*id, *at);
            let raw = field(replies, key.clone(), list.into(), note)?;
            Record::Delayed(reply::at(&key, delayed_slices::decode(&raw.unwrap_or_default()))?)
        }
        Key::DirStat(ino) => Record::DirStat(dir_stat(names, *ino, replies, note)?),
        Key::Quota(key) => Record::Quota(quota(names, *key, replies, note)?),
        Key::Acl(id) => {
            let key = names.acl();
            let raw = field(replies, key.clone(), id.to_string().into(), note)?;
            let rule = raw.map(|raw| reply::at(&format!("{key} {id}"), AclRule::decode(&raw)));
            Record::Acl(rule.transpose()?)
        }
    })
}

fn attr(key: String, raw: Option<Bytes>, note: Note<'_>) -> Result<Record> {
    let attr = raw.as_ref().map(|raw| reply::at(&key, Attr::decode(raw))).transpose()?;
    note(Guard::Attr { key, raw });
    Ok(Record::Attr(attr))
}

fn entry(names: &Names, dir: Ino, raw: &[u8]) -> Result<Entry> {
    reply::at(&names.entries(dir), Entry::decode(raw))
}

fn lookup(
    names: &Names,
    dir: Ino,
    name: &Name,
    replies: &mut Replies,
    note: Note<'_>,
) -> Result<Option<Found>> {
    let key = names.entries(dir);
    let (raw_entry, raw_attr) = match replies.value(&key)? {
        Value::Nil => (None, None),
        value => {
            let mut parts = reply::list(value, &key)?.into_iter();
            (parts.next().flatten(), parts.next().flatten())
        }
    };
    note(Guard::Entry { key, field: raw_name(name), raw: raw_entry.clone() });
    let Some(raw_entry) = raw_entry else { return Ok(None) };
    let entry = entry(names, dir, &raw_entry)?;
    let Record::Attr(attr) = attr(names.attr(entry.ino), raw_attr, note)? else { return Ok(None) };
    Ok(Some(Found { entry, attr }))
}

fn dir_stat(
    names: &Names,
    ino: Ino,
    replies: &mut Replies,
    note: Note<'_>,
) -> Result<Option<DirStat>> {
    let stats = names.stats();
    let mut part = |key: String| {
        let raw = field(replies, key.clone(), ino.to_string().into(), note)?;
        raw.map(|raw| reply::number(&raw, &key)).transpose()
    };
    let parts = (part(stats.length)?, part(stats.space)?, part(stats.inodes)?);
    let (Some(length), Some(space), Some(inodes)) = parts else { return Ok(None) };
    Ok(Some(DirStat { length, space, inodes }))
}

fn quota(
    names: &Names,
    key: QuotaKey,
    replies: &mut Replies,
    note: Note<'_>,
) -> Result<Option<Quota>> {
    let quotas = names.quotas(key);
    let mut part =
        |hash: &str| field(replies, hash.to_owned(), names::quota_field(key).into(), note);
    let (limits, space, inodes) =
        (part(&quotas.limits)?, part(&quotas.space)?, part(&quotas.inodes)?);
    limits::compose(names, key, limits.as_deref(), space.as_deref(), inodes.as_deref())
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

pub(super) fn flocks(key: &str, pairs: &[(Bytes, Bytes)]) -> Result<Vec<Flock>> {
    let read = |(holder, raw): &(Bytes, Bytes)| {
        let (sid, owner) = names::parse_lock_field(holder).ok_or_else(|| odd_field(key, holder))?;
        let letter = raw.first().copied().unwrap_or_default();
        Ok(Flock { sid, owner, kind: reply::at(key, LockKind::from_letter(letter))? })
    };
    pairs.iter().map(read).collect()
}

pub(super) fn plocks(key: &str, pairs: &[(Bytes, Bytes)]) -> Result<Vec<Plock>> {
    let read = |(holder, raw): &(Bytes, Bytes)| {
        let (sid, owner) = names::parse_lock_field(holder).ok_or_else(|| odd_field(key, holder))?;
        Ok(Plock { sid, owner, ranges: reply::at(key, lock::decode_ranges(raw))? })
    };
    pairs.iter().map(read).collect()
}

fn field(
    replies: &mut Replies,
    key: String,
    field: Bytes,
    note: Note<'_>,
) -> Result<Option<Bytes>> {
    let raw = replies.bytes(&key)?;
    note(Guard::Field { key, field, raw: raw.clone() });
    Ok(raw)
}

fn hash(
    replies: &mut Replies,
    key: String,
    note: Note<'_>,
) -> Result<(String, Vec<(Bytes, Bytes)>)> {
    let pairs = replies.pairs(&key)?;
    note(Guard::Hash { key: key.clone(), pairs: pairs.clone() });
    Ok((key, pairs))
}

fn raw_name(name: &Name) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn odd_field(key: &str, field: &[u8]) -> Error {
    Error::damaged(key, format!("unreadable field {:?}", String::from_utf8_lossy(field)))
}
