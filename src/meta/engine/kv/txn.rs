//! Transactions: guarded reads, then one commit.
//!
//! The first attempt commits the very transaction that the plan read from, so an uncontended commit
//! costs no read that the changes do not need. A store is free to see conflicts where the contract
//! sees none (someone appended to a chunk of which only the head matters, or wrote back the same
//! value), so the next attempts read everything again and judge for themselves: only a guarded
//! record that really differs is a conflict.
//!
//! Where a store checks no more than what a commit writes, places are shared and seized by seats
//! (see [`KvTxn::share`]), and tasks that rewrite the same directory take turns.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::apply::Applier;
use super::changelog;
use super::keys::StoreKey;
use super::needs::Needs;
use super::overlay::Overlay;
use super::read::{Source, Unguarded, records};
use super::seats::{Seat, Seats};
use super::store::{KvStore, KvTxn, Pair, Scan};
use super::turns::{Turn, Turns};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::{Change, CommitError, Key, Record, Txn};
use crate::meta::record::{Attr, FileKind};

/// Attempts after the first. More contention than that is better waited out by the run loop.
pub(super) const FRESH_ATTEMPTS: usize = 3;

/// What keeps transactions of this process out of each other's way; nothing for a store that needs
/// no such help.
pub(super) struct Order(Option<(Seats, Turns)>);

impl Order {
    pub fn new(seats: u8) -> Self {
        Self((seats > 0).then(|| (Seats::new(seats), Turns::new())))
    }

    /// The turn of everyone whose directory the changes touch.
    async fn turn(&self, changes: &[Change]) -> Option<Turn> {
        let (_, turns) = self.0.as_ref()?;
        let touched: Vec<Vec<u8>> = changes
            .iter()
            .filter_map(|change| match change {
                Change::TouchDir { ino, .. } => Some(StoreKey::Attr(*ino).encode()),
                _ => None,
            })
            .collect();
        Some(turns.wait(touched.iter()).await)
    }
}

pub(super) struct KvTransaction {
    store: Arc<dyn KvStore>,
    order: Arc<Order>,
    /// By place. Taken before the transaction begins, kept until it ends.
    seats: HashMap<Vec<u8>, Seat>,
    /// Begun with the first guarded read.
    open: Option<Box<dyn KvTxn>>,
    watched: Watched,
}

/// What was read under guard.
#[derive(Debug, Default)]
struct Watched {
    points: HashMap<Vec<u8>, Option<Bytes>>,
    scans: Vec<(Scan, Vec<Pair>)>,
    /// Attrs that matter as places, unless they are among the exact ones.
    places: HashSet<Vec<u8>>,
    exact: HashSet<Vec<u8>>,
}

impl Watched {
    /// Tells attrs that must be as they were from those that must be the same place.
    fn sort_attrs(&mut self, keys: &[Key], records: &[Record]) {
        for (key, record) in keys.iter().zip(records) {
            match (key, record) {
                (Key::Place(ino), _) => {
                    self.places.insert(StoreKey::Attr(*ino).encode());
                }
                (Key::Attr(ino), _) => {
                    self.exact.insert(StoreKey::Attr(*ino).encode());
                }
                (Key::Lookup(..), Record::Lookup(Some(found))) => {
                    self.exact.insert(StoreKey::Attr(found.entry.ino).encode());
                }
                _ => {}
            }
        }
    }

    fn is_place(&self, key: &Vec<u8>) -> bool {
        self.places.contains(key) && !self.exact.contains(key)
    }
}

impl KvTransaction {
    pub fn new(store: Arc<dyn KvStore>, order: Arc<Order>) -> Self {
        Self { store, order, seats: HashMap::new(), open: None, watched: Watched::default() }
    }

    /// Takes a seat at every place among the keys; waits for the first one only, so that two that
    /// want the same two never wait for each other.
    async fn sit(&mut self, keys: &[Key]) {
        let Some((seats, _)) = &self.order.0 else { return };
        for key in keys {
            let Key::Place(ino) = key else { continue };
            let place = StoreKey::Attr(*ino).encode();
            if self.seats.contains_key(&place) {
                continue;
            }
            let seat = if self.seats.is_empty() && self.open.is_none() {
                seats.take(&place).await
            } else {
                seats.try_take(&place)
            };
            self.seats.extend(seat.map(|seat| (place, seat)));
        }
    }

    /// Tells the store which guards are shared, and which ones end. The value of a place that is
    /// written anyway needs no sharing: that alone conflicts.
    fn arrange(&self, kv: &mut dyn KvTxn, watched: &Watched, cells: &Overlay, changes: &[Change]) {
        let Some((seats, _)) = &self.order.0 else { return };
        for place in watched.places.iter().filter(|key| watched.is_place(key)) {
            // One that is not there has nobody who could take it away; whoever makes it is no seizer.
            let exists = watched.points.get(place).is_some_and(Option::is_some);
            if exists && !cells.writes(place) {
                let seat = self.seats.get(place).map_or_else(|| seats.any(), |seat| seat.number);
                kv.share(place, seat);
            }
        }
        // Ranges are guarded through the node that they belong to: by who adds to one, whatever
        // else the plan has read, and by who has listed it. Not so the hours of the trash: everyone
        // who removes something adds to the same one, and they go when they are days old.
        for change in changes {
            match change {
                Change::PutEntry(dir, ..) if !dir.is_trash() => {
                    let place = StoreKey::Attr(*dir).encode();
                    if !watched.points.contains_key(&place) && !cells.writes(&place) {
                        kv.share(&place, seats.any());
                    }
                }
                Change::PutXattr(ino, ..)
                | Change::RemoveXattr(ino, _)
                | Change::AddParent { ino, .. } => kv.guard(&StoreKey::Attr(*ino).encode()),
                _ => {}
            }
        }
        for (scan, found) in &watched.scans {
            match StoreKey::listed(&scan.start) {
                Some((dir, b'D')) if found.is_empty() => kv.seize(&StoreKey::Attr(dir).encode()),
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
        for key in cells.written() {
            let Some(StoreKey::Attr(ino)) = StoreKey::decode(key) else { continue };
            let before = cells.before(key).or_else(|| watched.points.get(key));
            let ends = match before {
                Some(before) => ends_place(before.as_ref(), cells.value(key)),
                None => !named.contains(&ino) && cells.value(key).is_none_or(|now| is_dir(now)),
            };
            if ends {
                kv.seize(key);
            }
        }
    }

    async fn opened(&mut self) -> Result<&mut dyn KvTxn> {
        let kv = match self.open.take() {
            Some(kv) => kv,
            None => self.store.begin().await?,
        };
        Ok(self.open.insert(kv).as_mut())
    }
}

impl Source for KvTransaction {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let missing: BTreeSet<&Vec<u8>> =
            keys.iter().filter(|key| !self.watched.points.contains_key(*key)).collect();
        let missing: Vec<Vec<u8>> = missing.into_iter().cloned().collect();
        if !missing.is_empty() {
            let values = self.opened().await?.get(&missing).await?;
            self.watched.points.extend(missing.into_iter().zip(values));
        }
        Ok(keys.iter().map(|key| self.watched.points.get(key).cloned().flatten()).collect())
    }

    async fn scan(&mut self, scan: Scan) -> Result<Vec<Pair>> {
        let pairs = self.opened().await?.scan(&scan).await?;
        self.watched.scans.push((scan, pairs.clone()));
        Ok(pairs)
    }
}

#[async_trait]
impl Txn for KvTransaction {
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        self.sit(keys).await;
        let records = records(self, keys).await?;
        self.watched.sort_attrs(keys, &records);
        Ok(records)
    }

    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        records(&mut Unguarded(self.store.as_ref()), keys).await
    }

    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        let needs = Needs::of(changes);
        let watched = std::mem::take(&mut self.watched);
        let turn = self.order.turn(changes).await;
        // Whoever waited would only commit what others have changed meanwhile.
        let waited = turn.as_ref().is_some_and(|turn| turn.waited);
        let mut first = self.open.take().filter(|_| !waited);
        let mut left = FRESH_ATTEMPTS;
        loop {
            let (mut kv, cells) = if let Some(mut kv) = first.take() {
                let cells = load(kv.as_mut(), &watched, &needs).await;
                (kv, cells.map_err(CommitError::Failed)?)
            } else {
                let mut kv = self.store.begin().await.map_err(CommitError::Failed)?;
                let cells = load_again(kv.as_mut(), &watched, &needs).await?;
                (kv, cells)
            };
            match self.attempt(kv.as_mut(), cells, &watched, &needs, changes).await {
                Err(CommitError::Conflict) if left > 0 => left -= 1,
                done => return done,
            }
        }
    }
}

impl KvTransaction {
    /// Applies the changes to what was loaded, and commits that.
    async fn attempt(
        &mut self,
        kv: &mut dyn KvTxn,
        mut cells: Overlay,
        watched: &Watched,
        needs: &Needs,
        changes: &[Change],
    ) -> Result<Vec<i64>, CommitError> {
        let too_short =
            |(key, head): (&Vec<u8>, &usize)| cells.value(key).map_or(0, Bytes::len) < *head;
        if needs.heads.iter().any(too_short) {
            return Err(CommitError::Conflict);
        }
        let log_key = changelog::key(self.store.properties().log_shards, kv.version());
        let receipts = Applier::new(&mut cells, changes, log_key)
            .apply(changes)
            .map_err(CommitError::Failed)?;
        self.arrange(kv, watched, &cells, changes);
        for (key, value) in cells.into_writes() {
            match value {
                Some(value) => kv.put(key, value),
                None => kv.delete(key),
            }
        }
        kv.commit().await.map(|()| receipts)
    }
}

/// Whether a write takes a directory away from those who rely on it, or makes it another place.
fn ends_place(before: Option<&Bytes>, now: Option<&Bytes>) -> bool {
    before.is_some_and(|before| is_dir(before) && !same_place(Some(before), now))
}

fn is_dir(raw: &[u8]) -> bool {
    // What does not decode might be one.
    Attr::decode(raw).map_or(true, |attr| attr.kind == FileKind::Dir)
}

/// What the changes need, as far as the plan has not read it already.
async fn load(kv: &mut dyn KvTxn, watched: &Watched, needs: &Needs) -> Result<Overlay> {
    let mut cells = Overlay::default();
    let mut missing = BTreeSet::new();
    for key in &needs.points {
        match watched.points.get(key) {
            Some(value) => cells.load(key.clone(), value.clone()),
            None => {
                missing.insert(key.clone());
            }
        }
    }
    let missing: Vec<Vec<u8>> = missing.into_iter().collect();
    if !missing.is_empty() {
        let values = kv.get(&missing).await?;
        missing.into_iter().zip(values).for_each(|(key, value)| cells.load(key, value));
    }
    list(kv, needs, &mut cells).await?;
    Ok(cells)
}

/// What the changes need and everything guarded, from a new transaction; a conflict if what was
/// guarded is no longer so.
async fn load_again(
    kv: &mut dyn KvTxn,
    watched: &Watched,
    needs: &Needs,
) -> Result<Overlay, CommitError> {
    let keys: BTreeSet<&Vec<u8>> = watched.points.keys().chain(&needs.points).collect();
    let keys: Vec<Vec<u8>> = keys.into_iter().cloned().collect();
    let mut cells = Overlay::default();
    if !keys.is_empty() {
        let values = kv.get(&keys).await.map_err(CommitError::Failed)?;
        keys.into_iter().zip(values).for_each(|(key, value)| cells.load(key, value));
    }
    for (key, read) in &watched.points {
        let now = cells.value(key);
        let holds = match needs.heads.get(key) {
            Some(head) => head_of(read.as_ref(), *head) == head_of(now, *head),
            None if watched.is_place(key) => same_place(read.as_ref(), now),
            None => read.as_ref() == now,
        };
        if !holds {
            return Err(CommitError::Conflict);
        }
    }
    for (scan, read) in &watched.scans {
        let now = kv.scan(scan).await.map_err(CommitError::Failed)?;
        // A scan for one key asks whether there is any; which one it found does not matter.
        let holds = if scan.limit == 1 { read.is_empty() == now.is_empty() } else { *read == now };
        if !holds {
            return Err(CommitError::Conflict);
        }
    }
    list(kv, needs, &mut cells).await.map_err(CommitError::Failed)?;
    Ok(cells)
}

async fn list(kv: &mut dyn KvTxn, needs: &Needs, cells: &mut Overlay) -> Result<()> {
    for scan in &needs.scans {
        for (key, _) in kv.scan(scan).await? {
            cells.list(key);
        }
    }
    Ok(())
}

fn same_place(read: Option<&Bytes>, now: Option<&Bytes>) -> bool {
    let decode = |raw: Option<&Bytes>| raw.and_then(|raw| Attr::decode(raw).ok());
    match (decode(read), decode(now)) {
        (Some(read), Some(now)) => read.same_place(&now),
        (None, None) => read == now,
        _ => false,
    }
}

fn head_of(raw: Option<&Bytes>, len: usize) -> &[u8] {
    let raw: &[u8] = raw.map_or(&[], AsRef::as_ref);
    raw.get(..len).unwrap_or(raw)
}
