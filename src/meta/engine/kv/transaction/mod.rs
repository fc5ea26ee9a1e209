//! Transactions: guarded reads, then one commit.
//!
//! The first attempt commits the same store transaction that the plan read from, so an uncontended
//! commit costs no read that the changes do not need. A store may report conflicts where the
//! contract has none (somebody appended to a chunk of which only the first records matter, or wrote
//! back the same value). So the next attempts read everything again and compare: only a guarded
//! record that really differs is a conflict.
//!
//! Where a store checks only the keys that a commit writes, directories are guarded by shared and
//! exclusive locks (see [`StoreTxn::lock_shared`]), and tasks that rewrite the same directory run
//! one after the other.

mod apply;
mod dir_locks;
mod guarded_reads;
mod local_order;
mod required_reads;
mod write_buffer;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use self::apply::Applier;
pub(super) use self::dir_locks::DirLocks;
use self::dir_locks::SharedSlot;
use self::guarded_reads::{GuardedReads, load, load_again, same_place};
use self::required_reads::RequiredReads;
use self::write_buffer::WriteBuffer;
use super::keys::StoreKey;
use super::read::{ReadSource, Unguarded, records};
use super::store::{KvStore, Pair, Scan, StoreTxn};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::{Change, CommitError, Key, Record, Txn};
use crate::meta::record::{Attr, FileKind};

/// Attempts after the first. The run loop copes better with more contention than that.
pub(super) const FRESH_ATTEMPTS: usize = 3;

pub(super) struct KvTxn {
    store: Arc<dyn KvStore>,
    dir_locks: Option<Arc<DirLocks>>,
    /// By the key of the directory's attr. Taken before the store transaction begins and kept until
    /// it ends.
    slots: HashMap<Vec<u8>, SharedSlot>,
    /// Begun with the first guarded read.
    open: Option<Box<dyn StoreTxn>>,
    guarded: GuardedReads,
}

impl KvTxn {
    pub fn new(store: Arc<dyn KvStore>, dir_locks: Option<Arc<DirLocks>>) -> Self {
        let (slots, guarded) = (HashMap::new(), GuardedReads::default());
        Self { store, dir_locks, slots, open: None, guarded }
    }

    /// Takes a slot of every directory that the keys guard as a place. Waits for the first one
    /// only, so that two transactions that want the same two slots never wait for each other.
    async fn take_slots(&mut self, keys: &[Key]) {
        let Some(locks) = &self.dir_locks else { return };
        for key in keys {
            let Key::Place(ino) = key else { continue };
            let dir = StoreKey::Attr(*ino).encode();
            if self.slots.contains_key(&dir) {
                continue;
            }
            let slot = if self.slots.is_empty() && self.open.is_none() {
                locks.slots.take(&dir).await
            } else {
                locks.slots.try_take(&dir)
            };
            self.slots.extend(slot.map(|slot| (dir, slot)));
        }
    }

    /// Tells the store which guards are shared and which keys need an exclusive lock. A directory
    /// whose attr is written anyway needs no shared lock: the write itself conflicts.
    fn lock_guards(
        &self,
        kv: &mut dyn StoreTxn,
        guarded: &GuardedReads,
        buffer: &WriteBuffer,
        changes: &[Change],
    ) {
        let Some(locks) = &self.dir_locks else { return };
        for dir in guarded.places.iter().filter(|key| guarded.is_place(key)) {
            // A directory that does not exist cannot be removed, and creating it takes no
            // exclusive lock.
            let exists = guarded.points.get(dir).is_some_and(Option::is_some);
            if exists && !buffer.writes(dir) {
                let slot =
                    self.slots.get(dir).map_or_else(|| locks.slots.random(), |slot| slot.number);
                kv.lock_shared(dir, slot);
            }
        }
        // Ranges are guarded through the node that they belong to: by everyone who adds to one,
        // whatever else the plan has read, and by everyone who has listed it. The hour directories
        // of the trash are an exception: everyone who removes a file adds to the same one, and they
        // are only removed when they are days old.
        for change in changes {
            match change {
                Change::PutEntry(dir, ..) if !dir.is_trash() => {
                    let dir = StoreKey::Attr(*dir).encode();
                    if !guarded.points.contains_key(&dir) && !buffer.writes(&dir) {
                        kv.lock_shared(&dir, locks.slots.random());
                    }
                }
                Change::PutXattr(ino, ..)
                | Change::RemoveXattr(ino, _)
                | Change::AddParent { ino, .. } => kv.guard(&StoreKey::Attr(*ino).encode()),
                _ => {}
            }
        }
        for (scan, found) in &guarded.scans {
            match StoreKey::range_owner(&scan.start) {
                Some((dir, b'D')) if found.is_empty() => {
                    kv.lock_exclusive(&StoreKey::Attr(dir).encode());
                }
                Some((ino, b'X' | b'P')) => kv.guard(&StoreKey::Attr(ino).encode()),
                _ => {}
            }
        }
        // A node that gets its first name here is new: nobody can rely on it yet.
        let named: HashSet<Ino> = changes
            .iter()
            .filter_map(|change| match change {
                Change::PutEntry(_, _, entry) => Some(entry.ino),
                _ => None,
            })
            .collect();
        for key in buffer.written() {
            let Some(StoreKey::Attr(ino)) = StoreKey::decode(key) else { continue };
            let before = buffer.loaded(key).or_else(|| guarded.points.get(key));
            let ends = match before {
                Some(before) => ends_place(before.as_ref(), buffer.value(key)),
                None => !named.contains(&ino) && buffer.value(key).is_none_or(|now| is_dir(now)),
            };
            if ends {
                kv.lock_exclusive(key);
            }
        }
    }

    async fn opened(&mut self) -> Result<&mut dyn StoreTxn> {
        let kv = match self.open.take() {
            Some(kv) => kv,
            None => self.store.begin().await?,
        };
        Ok(self.open.insert(kv).as_mut())
    }

    /// Applies the changes to the loaded values and commits the result.
    async fn attempt(
        &mut self,
        kv: &mut dyn StoreTxn,
        mut buffer: WriteBuffer,
        guarded: &GuardedReads,
        required: &RequiredReads,
        changes: &[Change],
    ) -> Result<Vec<i64>, CommitError> {
        let too_short =
            |(key, head): (&Vec<u8>, &usize)| buffer.value(key).map_or(0, Bytes::len) < *head;
        if required.heads.iter().any(too_short) {
            return Err(CommitError::Conflict);
        }
        let log_key = StoreKey::log(self.store.properties().log_shards, kv.version()).encode();
        let results = Applier::new(&mut buffer, changes, log_key)
            .apply(changes)
            .map_err(CommitError::Failed)?;
        self.lock_guards(kv, guarded, &buffer, changes);
        for (key, value) in buffer.into_mutations() {
            match value {
                Some(value) => kv.put(key, value),
                None => kv.delete(key),
            }
        }
        kv.commit().await.map(|()| results)
    }
}

impl ReadSource for KvTxn {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let missing: BTreeSet<&Vec<u8>> =
            keys.iter().filter(|key| !self.guarded.points.contains_key(*key)).collect();
        let missing: Vec<Vec<u8>> = missing.into_iter().cloned().collect();
        if !missing.is_empty() {
            let values = self.opened().await?.get(&missing).await?;
            self.guarded.points.extend(missing.into_iter().zip(values));
        }
        Ok(keys.iter().map(|key| self.guarded.points.get(key).cloned().flatten()).collect())
    }

    async fn scan(&mut self, scan: Scan) -> Result<Vec<Pair>> {
        let pairs = self.opened().await?.scan(&scan).await?;
        self.guarded.scans.push((scan, pairs.clone()));
        Ok(pairs)
    }
}

#[async_trait]
impl Txn for KvTxn {
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        self.take_slots(keys).await;
        let records = records(self, keys).await?;
        self.guarded.sort_attrs(keys, &records);
        Ok(records)
    }

    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        records(&mut Unguarded(self.store.as_ref()), keys).await
    }

    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        let required = RequiredReads::of(changes);
        let guarded = std::mem::take(&mut self.guarded);
        let order = match &self.dir_locks {
            Some(locks) => Some(locks.lock_touched(changes).await),
            None => None,
        };
        // After a wait, the open transaction has read values that others have changed meanwhile.
        let waited = order.as_ref().is_some_and(|guard| guard.waited);
        let mut first = self.open.take().filter(|_| !waited);
        let mut left = FRESH_ATTEMPTS;
        loop {
            let (mut kv, buffer) = if let Some(mut kv) = first.take() {
                let buffer = load(kv.as_mut(), &guarded, &required).await;
                (kv, buffer.map_err(CommitError::Failed)?)
            } else {
                let mut kv = self.store.begin().await.map_err(CommitError::Failed)?;
                let buffer = load_again(kv.as_mut(), &guarded, &required).await?;
                (kv, buffer)
            };
            match self.attempt(kv.as_mut(), buffer, &guarded, &required, changes).await {
                Err(CommitError::Conflict) if left > 0 => left -= 1,
                done => return done,
            }
        }
    }
}

/// Returns whether a write removes a directory, or changes it so that it is no longer the same
/// place for its entries.
fn ends_place(before: Option<&Bytes>, now: Option<&Bytes>) -> bool {
    before.is_some_and(|before| is_dir(before) && !same_place(Some(before), now))
}

fn is_dir(raw: &[u8]) -> bool {
    // An attr that cannot be decoded might be one.
    Attr::decode(raw).map_or(true, |attr| attr.kind == FileKind::Dir)
}
