//! The transaction that operations plan with: typed, cached, guarded reads.

use std::collections::HashMap;

use bytes::Bytes;

use super::context::Context;
use super::engine::{Change, CommitError, Found, Key, Record, Txn};
use super::record::{AclRule, Attr, Entry, Flock, Plock, Slice, SliceSize};
use super::{Ino, Name, Sid, SliceId, Timestamp};
use crate::error::{Error, Result};

/// One attempt to plan and commit an operation. Each record is read from the store once, and every
/// read is a guard: the commit fails if the record has changed since.
pub struct MetaTxn<'a> {
    raw: Box<dyn Txn>,
    context: &'a Context,
    records: HashMap<Key, Record>,
    now: Timestamp,
    requested_rule: Option<AclRule>,
    speculation: Speculation,
}

/// Whether a plan may use records that this client remembers instead of reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speculation {
    Forbidden,
    Allowed,
    /// The plan uses such records: only a successful commit proves them right.
    Used,
}

impl<'a> MetaTxn<'a> {
    pub fn new(raw: Box<dyn Txn>, context: &'a Context) -> Self {
        let now = Timestamp::now();
        let speculation = Speculation::Forbidden;
        Self { raw, context, records: HashMap::new(), now, requested_rule: None, speculation }
    }

    /// The time that this attempt writes into records.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What the operation may know besides records.
    pub fn context(&self) -> &'a Context {
        self.context
    }

    /// Reads all keys with one request; the accessors then return them from memory.
    pub async fn prefetch(&mut self, keys: &[Key]) -> Result<()> {
        let missing: Vec<Key> =
            keys.iter().filter(|key| !self.records.contains_key(key)).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let records = self.raw.read(&missing).await?;
        for (key, record) in missing.into_iter().zip(records) {
            self.cache(key, record);
        }
        Ok(())
    }

    /// As [`MetaTxn::prefetch`], but where the engine supports it, returns records as this client
    /// last saw them, and unknown names as free, without reading them. This saves a round trip; the
    /// commit verifies the records.
    pub async fn prefetch_speculative(&mut self, keys: &[Key]) -> Result<()> {
        if self.speculation == Speculation::Allowed
            && self.records.is_empty()
            && let Some(records) = self.raw.speculate(keys)
        {
            self.speculation = Speculation::Used;
            for (key, record) in keys.iter().zip(records) {
                self.cache(key.clone(), record);
            }
            return Ok(());
        }
        self.prefetch(keys).await
    }

    /// Uses entries of an earlier listing as if they had just been read, with guards. Returns false
    /// if they must be read.
    pub fn speculate_entries(&mut self, dir: Ino, listed: &[(Name, Entry)]) -> bool {
        let accepted =
            self.speculation != Speculation::Forbidden && self.raw.speculate_entries(dir, listed);
        if accepted {
            self.speculation = Speculation::Used;
        }
        accepted
    }

    /// Reads all keys with one request and caches none: for many records that are used once.
    pub async fn read_many(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        self.raw.read(keys).await
    }

    pub(super) fn allow_speculation(&mut self) {
        self.speculation = Speculation::Allowed;
    }

    /// Whether the plan uses records that were not read.
    pub(super) fn has_speculated(&self) -> bool {
        self.speculation == Speculation::Used
    }

    pub async fn attr(&mut self, ino: Ino) -> Result<Option<Attr>> {
        match self.read(Key::Attr(ino)).await? {
            Record::Attr(attr) => Ok(attr),
            other => Err(mismatch("attr", &other)),
        }
    }

    /// The attr of a node that must exist.
    pub async fn node(&mut self, ino: Ino) -> Result<Attr> {
        self.attr(ino).await?.ok_or(Error::NotFound)
    }

    /// The attr of a directory that must exist, as the parent of an entry. Entries that others add
    /// or remove are no conflict, so it must be written by [`super::Plan::touch_dir`] only.
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

    /// The slices that compaction into `id` replaced at `at`; empty if the record is gone.
    pub async fn delayed(&mut self, id: SliceId, at: i64) -> Result<Vec<SliceSize>> {
        match self.read(Key::Delayed(id, at)).await? {
            Record::Delayed(slices) => Ok(slices),
            other => Err(mismatch("delayed slices", &other)),
        }
    }

    /// The parents of a node with the number of entries in each: the one in its attr, or the parent
    /// records. Unguarded: they are only used for usage accounting and permission walks.
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

    /// As [`MetaTxn::peek_attr`], for many nodes.
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

    /// Reads a record without a guard.
    pub async fn peek(&mut self, key: Key) -> Result<Record> {
        if let Some(record) = self.records.get(&key) {
            return Ok(record.clone());
        }
        let mut records = self.raw.peek(&[key]).await?;
        records.pop().ok_or_else(|| Error::damaged("reply", "the engine returned no record"))
    }

    /// Requests that a rule be stored before this operation is planned again. The caller must return
    /// the error, which ends the plan; the run loop then stores the rule and plans again.
    pub(super) fn request_rule(&mut self, rule: AclRule) -> Error {
        self.requested_rule = Some(rule);
        Error::Contended("storing an ACL rule")
    }

    pub(super) fn take_requested_rule(&mut self) -> Option<AclRule> {
        self.requested_rule.take()
    }

    pub(super) async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        self.raw.commit(changes).await
    }

    async fn read(&mut self, key: Key) -> Result<Record> {
        if let Some(record) = self.records.get(&key) {
            return Ok(record.clone());
        }
        let mut records = self.raw.read(std::slice::from_ref(&key)).await?;
        let record = records
            .pop()
            .ok_or_else(|| Error::damaged("reply", "the engine returned no record"))?;
        self.cache(key, record.clone());
        Ok(record)
    }

    /// A lookup also caches its entry and the attr of the node.
    fn cache(&mut self, key: Key, record: Record) {
        if let (Key::Lookup(dir, name), Record::Lookup(found)) = (&key, &record) {
            let entry = found.as_ref().map(|found| found.entry);
            self.records.insert(Key::Entry(*dir, name.clone()), Record::Entry(entry));
            if let Some(found) = found {
                self.records.insert(Key::Attr(found.entry.ino), Record::Attr(found.attr.clone()));
            }
        }
        self.records.insert(key, record);
    }
}

fn mismatch(wanted: &str, got: &Record) -> Error {
    Error::damaged(wanted, format!("the engine returned {got:?}"))
}
