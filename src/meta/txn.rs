//! Typed, remembered, guarded reads for planning.

use std::collections::HashMap;

use bytes::Bytes;

use super::client::Facts;
use super::engine::{Change, CommitError, Found, Key, Record, Txn};
use super::record::{AclRule, Attr, Entry, Flock, Plock, Slice, SliceSize};
use super::{Ino, Name, Sid, SliceId, Timestamp};
use crate::error::{Error, Result};

/// What an operation plans with. Every read is a guard, and is read from the store once.
pub struct MetaTxn<'a> {
    raw: Box<dyn Txn>,
    facts: &'a Facts,
    seen: HashMap<Key, Record>,
    now: Timestamp,
    wanted_rule: Option<AclRule>,
    supposing: Supposing,
}

/// Whether a plan may rest on what is only supposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supposing {
    Never,
    Allowed,
    /// It does: nothing but a commit that goes through proves it.
    Done,
}

impl<'a> MetaTxn<'a> {
    pub fn new(raw: Box<dyn Txn>, facts: &'a Facts) -> Self {
        let now = Timestamp::now();
        let supposing = Supposing::Never;
        Self { raw, facts, seen: HashMap::new(), now, wanted_rule: None, supposing }
    }

    /// The time of everything this attempt writes.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What planning may know besides records.
    pub fn facts(&self) -> &'a Facts {
        self.facts
    }

    /// Reads all keys at once; the accessors then answer from memory.
    pub async fn prefetch(&mut self, keys: &[Key]) -> Result<()> {
        let missing: Vec<Key> =
            keys.iter().filter(|key| !self.seen.contains_key(key)).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let records = self.raw.read(&missing).await?;
        for (key, record) in missing.into_iter().zip(records) {
            self.remember(key, record);
        }
        Ok(())
    }

    /// As [`MetaTxn::prefetch`], for a plan that is going to be committed if nodes and names are as
    /// this client saw them last, and names that it did not see are free. Where the store allows it, that is supposed
    /// instead of read, which saves a round trip.
    pub async fn expect(&mut self, keys: &[Key]) -> Result<()> {
        if self.supposing == Supposing::Allowed
            && self.seen.is_empty()
            && let Some(records) = self.raw.suppose(keys)
        {
            self.supposing = Supposing::Done;
            for (key, record) in keys.iter().zip(records) {
                self.remember(key.clone(), record);
            }
            return Ok(());
        }
        self.prefetch(keys).await
    }

    /// Takes names that a listing has told for what the store holds, guarded as if they had been read.
    /// False if they have to be read.
    pub fn expect_listed(&mut self, dir: Ino, listed: &[(Name, Entry)]) -> bool {
        let may = self.supposing != Supposing::Never && self.raw.suppose_listed(dir, listed);
        if may {
            self.supposing = Supposing::Done;
        }
        may
    }

    /// Reads all keys at once and remembers none: for many that are looked at once.
    pub async fn read_many(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        self.raw.read(keys).await
    }

    pub(super) fn allow_supposing(&mut self) {
        self.supposing = Supposing::Allowed;
    }

    /// Whether the plan rests on anything that was not read.
    pub(super) fn has_supposed(&self) -> bool {
        self.supposing == Supposing::Done
    }

    pub async fn attr(&mut self, ino: Ino) -> Result<Option<Attr>> {
        match self.read(Key::Attr(ino)).await? {
            Record::Attr(attr) => Ok(attr),
            other => Err(mismatch("attr", &other)),
        }
    }

    /// The attr of a node that must be there.
    pub async fn node(&mut self, ino: Ino) -> Result<Attr> {
        self.attr(ino).await?.ok_or(Error::NotFound)
    }

    /// The attr of a directory that must be there, as a place: what others put into it or take out
    /// of it is no conflict, so it must be written by [`super::Plan::touch`] only.
    pub async fn dir(&mut self, ino: Ino) -> Result<Attr> {
        match self.read(Key::Place(ino)).await? {
            Record::Attr(attr) => attr.ok_or(Error::NotFound)?.into_dir(),
            other => Err(mismatch("directory", &other)),
        }
    }

    pub async fn entry(&mut self, dir: Ino, name: &Name) -> Result<Option<Entry>> {
        match self.read(Key::Entry(dir, name.clone())).await? {
            Record::Entry(entry) => Ok(entry),
            other => Err(mismatch("entry", &other)),
        }
    }

    pub async fn lookup(&mut self, dir: Ino, name: &Name) -> Result<Option<Found>> {
        match self.read(Key::Lookup(dir, name.clone())).await? {
            Record::Lookup(found) => Ok(found),
            other => Err(mismatch("lookup", &other)),
        }
    }

    pub async fn has_entries(&mut self, dir: Ino) -> Result<bool> {
        match self.read(Key::HasEntries(dir)).await? {
            Record::HasEntries(any) => Ok(any),
            other => Err(mismatch("emptiness", &other)),
        }
    }

    pub async fn chunk(&mut self, ino: Ino, index: u32) -> Result<Vec<Slice>> {
        match self.read(Key::Chunk(ino, index)).await? {
            Record::Chunk(slices) => Ok(slices),
            other => Err(mismatch("chunk", &other)),
        }
    }

    pub async fn symlink(&mut self, ino: Ino) -> Result<Option<Bytes>> {
        match self.read(Key::Symlink(ino)).await? {
            Record::Symlink(target) => Ok(target),
            other => Err(mismatch("symlink", &other)),
        }
    }

    pub async fn xattr(&mut self, ino: Ino, name: &Name) -> Result<Option<Bytes>> {
        match self.read(Key::Xattr(ino, name.clone())).await? {
            Record::Xattr(value) => Ok(value),
            other => Err(mismatch("xattr", &other)),
        }
    }

    pub async fn xattrs(&mut self, ino: Ino) -> Result<Vec<(Name, Bytes)>> {
        match self.read(Key::Xattrs(ino)).await? {
            Record::Xattrs(all) => Ok(all),
            other => Err(mismatch("xattrs", &other)),
        }
    }

    pub async fn flocks(&mut self, ino: Ino) -> Result<Vec<Flock>> {
        match self.read(Key::Flocks(ino)).await? {
            Record::Flocks(locks) => Ok(locks),
            other => Err(mismatch("flocks", &other)),
        }
    }

    pub async fn plocks(&mut self, ino: Ino) -> Result<Vec<Plock>> {
        match self.read(Key::Plocks(ino)).await? {
            Record::Plocks(locks) => Ok(locks),
            other => Err(mismatch("plocks", &other)),
        }
    }

    pub async fn sustained(&mut self, sid: Sid, ino: Ino) -> Result<bool> {
        match self.read(Key::Sustained(sid, ino)).await? {
            Record::Sustained(is) => Ok(is),
            other => Err(mismatch("sustained", &other)),
        }
    }

    pub async fn slice_refs(&mut self, id: SliceId, size: u32) -> Result<i64> {
        match self.read(Key::SliceRef(id, size)).await? {
            Record::SliceRef(refs) => Ok(refs),
            other => Err(mismatch("slice reference", &other)),
        }
    }

    /// The list of slices that compaction into `id` replaced at `at`; empty if it is gone.
    pub async fn delayed(&mut self, id: SliceId, at: i64) -> Result<Vec<SliceSize>> {
        match self.read(Key::Delayed(id, at)).await? {
            Record::Delayed(slices) => Ok(slices),
            other => Err(mismatch("delayed slices", &other)),
        }
    }

    /// Parents of a node with entry counts: the one in its attr, or the parent records. Not
    /// guarded: they are only used for usage accounting and permission walks.
    pub async fn peek_parents(&mut self, ino: Ino, attr: &Attr) -> Result<Vec<(Ino, i64)>> {
        if attr.parent != Ino::NONE {
            return Ok(vec![(attr.parent, 1)]);
        }
        match self.peek(Key::Parents(ino)).await? {
            Record::Parents(parents) => Ok(parents),
            other => Err(mismatch("parents", &other)),
        }
    }

    pub async fn peek_attr(&mut self, ino: Ino) -> Result<Option<Attr>> {
        match self.peek(Key::Attr(ino)).await? {
            Record::Attr(attr) => Ok(attr),
            other => Err(mismatch("attr", &other)),
        }
    }

    /// As [`MetaTxn::peek_attr`], of many at once.
    pub async fn peek_attrs(&mut self, inos: &[Ino]) -> Result<Vec<Option<Attr>>> {
        if let [ino] = inos {
            return Ok(vec![self.peek_attr(*ino).await?]);
        }
        let keys: Vec<Key> = inos.iter().map(|ino| Key::Attr(*ino)).collect();
        let records = self.raw.peek(&keys).await?.into_iter();
        let attr = |record| match record {
            Record::Attr(attr) => Ok(attr),
            other => Err(mismatch("attr", &other)),
        };
        records.map(attr).collect()
    }

    /// A read that is not guarded: the visible exception.
    pub async fn peek(&mut self, key: Key) -> Result<Record> {
        if let Some(record) = self.seen.get(&key) {
            return Ok(record.clone());
        }
        let mut records = self.raw.peek(&[key]).await?;
        records.pop().ok_or_else(|| Error::damaged("answer", "empty"))
    }

    /// Notes a rule that must be stored before this operation can be planned. The error ends the
    /// plan; the run loop drops it, stores the rule and plans again.
    pub(super) fn want_rule(&mut self, rule: AclRule) -> Error {
        self.wanted_rule = Some(rule);
        Error::Contended("an ACL rule")
    }

    pub(super) fn take_wanted_rule(&mut self) -> Option<AclRule> {
        self.wanted_rule.take()
    }

    pub(super) async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        self.raw.commit(changes).await
    }

    async fn read(&mut self, key: Key) -> Result<Record> {
        if let Some(record) = self.seen.get(&key) {
            return Ok(record.clone());
        }
        let mut records = self.raw.read(std::slice::from_ref(&key)).await?;
        let record = records.pop().ok_or_else(|| Error::damaged("answer", "empty"))?;
        self.remember(key, record.clone());
        Ok(record)
    }

    /// A lookup also answers for its entry and the attr behind it.
    fn remember(&mut self, key: Key, record: Record) {
        if let (Key::Lookup(dir, name), Record::Lookup(found)) = (&key, &record) {
            let entry = found.as_ref().map(|found| found.entry);
            self.seen.insert(Key::Entry(*dir, name.clone()), Record::Entry(entry));
            if let Some(found) = found {
                self.seen.insert(Key::Attr(found.entry.ino), Record::Attr(found.attr.clone()));
            }
        }
        self.seen.insert(key, record);
    }
}

fn mismatch(wanted: &str, got: &Record) -> Error {
    Error::damaged(wanted, format!("the engine answered {got:?}"))
}
