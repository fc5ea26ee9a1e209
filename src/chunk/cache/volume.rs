//! The cache as one volume sees it: which disk has a block, and what was counted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::Common;
use super::health::State;
use super::ledger::AreaId;
use super::memory::Memory;
use super::removal::Removal;
use super::ring::{Ring, legacy_owner};
use super::shelf::{Known, Shelf};
use super::usage::{CacheUsage, Counters, Times};
use crate::chunk::{BlockKey, Layout};
use crate::error::{Error, Result, joined};
use crate::sync::RwLock;

/// The part of one volume in a [`super::Cache`].
pub struct VolumeCache {
    pub(super) common: Arc<Common>,
    pub(super) layout: Layout,
    pub(super) counters: Arc<Counters>,
    pub(super) place: Place,
    /// Ends the scans that belong to it.
    pub(super) closed: Arc<AtomicBool>,
}

/// Where its blocks are.
pub(super) enum Place {
    Disks(Disks),
    Memory(Arc<Memory>, AreaId),
}

/// A shelf on each disk, in the order of the directories; none where it could not be opened.
pub(super) struct Disks {
    shelves: Vec<Option<Shelf>>,
    ring: RwLock<Ring>,
}

impl VolumeCache {
    /// Bytes `range` of a block if it is cached and sound; none is a miss.
    pub async fn read(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        let (begun, length) = (Instant::now(), range.end.saturating_sub(range.start));
        let read = self.find(block, range).await;
        match &read {
            Some(bytes) => self.counters.hit(bytes.len(), begun.elapsed()),
            None => self.counters.miss(length),
        }
        read
    }

    /// As [`VolumeCache::read`], if it can be answered without waiting: from memory, or from an
    /// open file that the page cache has. None also means that `read` may find it.
    pub fn read_now(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        if !fits(block, &range) {
            return None;
        }
        let begun = Instant::now();
        let read = match &self.place {
            Place::Memory(memory, area) => memory.read(*area, block, &range),
            Place::Disks(disks) => {
                let shelf = disks.owner(self.key(block))?;
                match shelf.locate(block) {
                    Known::Body(body) => Some(cut(&body, &range)),
                    Known::OnDisk | Known::Perhaps => shelf.read_now(block, &range),
                    Known::Missing => None,
                }
            }
        };
        if let Some(bytes) = &read {
            self.counters.hit(bytes.len(), begun.elapsed());
        }
        read
    }

    /// Takes a block to be kept. Never waits: if the disk cannot follow, the block is dropped.
    pub fn put(&self, block: BlockKey, body: Bytes) {
        if body.is_empty() || body.len() != block.size as usize || self.common.is_closed() {
            return;
        }
        match &self.place {
            Place::Memory(memory, area) => memory.put(*area, block, &body, &self.counters),
            Place::Disks(disks) => match disks.owner(self.key(block)) {
                Some(shelf) => {
                    shelf.put(block, body, self.common.max_pending, &self.common.runtime);
                }
                None => self.counters.dropped(),
            },
        }
    }

    /// Whether the block is known to be cached. While the first scan runs, one that is there may
    /// not be known yet.
    pub fn contains(&self, block: BlockKey) -> bool {
        match &self.place {
            Place::Memory(memory, area) => memory.contains(*area, block),
            Place::Disks(disks) => {
                disks.candidates(self.key(block)).any(|shelf| shelf.knows(block))
            }
        }
    }

    /// Where a block is known to be cached: the volume's directory on that disk, or `memory`.
    pub fn place_of(&self, block: BlockKey) -> Option<String> {
        match &self.place {
            Place::Memory(memory, area) => {
                memory.contains(*area, block).then(|| "memory".to_owned())
            }
            Place::Disks(disks) => {
                let shelf = disks.candidates(self.key(block)).find(|shelf| shelf.knows(block))?;
                Some(shelf.area.root().display().to_string())
            }
        }
    }

    /// Forgets a block that the volume no longer has, staged or not.
    pub fn remove(&self, block: BlockKey) {
        match &self.place {
            Place::Memory(memory, area) => memory.remove(*area, block),
            Place::Disks(disks) => {
                let shelves = disks.candidates(self.key(block)).cloned();
                let forgotten = shelves.map(|shelf| {
                    let staged = shelf.forget(block);
                    (shelf, staged)
                });
                let removal = Removal { block, shelves: forgotten.collect() };
                let Common { removals, tasks, runtime, .. } = &*self.common;
                removals.add(removal, tasks, runtime);
            }
        }
    }

    /// Writeback: when this returns, the block is on disk and survives a crash of the machine. If
    /// it cannot be, the caller uploads it at once.
    pub async fn stage(&self, block: BlockKey, body: &Bytes, tier: u8) -> Result<()> {
        let key = self.layout.key(block);
        let refused = |cause: &str| Error::Storage {
            place: "cache".to_owned(),
            action: "stage",
            key: key.clone(),
            cause: cause.to_owned(),
        };
        if body.is_empty() || body.len() != block.size as usize {
            return Err(refused("its length is not that of the block"));
        }
        let Place::Disks(disks) = &self.place else {
            return Err(refused("the cache is in memory"));
        };
        let shelf = disks.owner(self.key(block)).ok_or_else(|| refused("no disk is left"))?.clone();
        if let Some(cause) = shelf.refuses_staging() {
            return Err(refused(cause));
        }
        let common = Arc::clone(&self.common);
        let Some(_place) = common.staging.enter(common.max_stage_write) else {
            return Err(refused("too many blocks are being staged"));
        };
        let _counted = self.counters.staging();
        let body = body.clone();
        let staged = spawn_blocking(move || shelf.stage(block, &body, tier));
        joined("staging a block", staged).await
    }

    /// Blocks staged and not uploaded, with their tiers, as the disks have them; those of earlier
    /// runs included.
    pub async fn staged(&self) -> Vec<(BlockKey, u8)> {
        let Place::Disks(disks) = &self.place else { return Vec::new() };
        let mut all = Vec::new();
        for shelf in disks.all() {
            let (shelf, closed) = (shelf.clone(), Arc::clone(&self.closed));
            all.extend(spawn_blocking(move || shelf.staged(&closed)).await.unwrap_or_default());
        }
        all
    }

    /// A staged block, checked, and its tier.
    pub async fn read_staged(&self, block: BlockKey) -> Result<(Bytes, u8)> {
        let shelves = self.shelves(block);
        let read = spawn_blocking(move || {
            let mut outcome = Err(Error::NotFound);
            for shelf in shelves {
                outcome = shelf.read_staged(block);
                if !matches!(outcome, Err(Error::NotFound)) {
                    break;
                }
            }
            outcome
        });
        joined("reading a staged block", read).await
    }

    /// The block is in the bucket: no longer staged, still cached.
    pub async fn unstage(&self, block: BlockKey) {
        let shelves = self.shelves(block);
        let unstaging = spawn_blocking(move || {
            let _ = shelves.iter().any(|shelf| shelf.unstage(block));
        });
        // If this process ends before, the block is uploaded once more.
        let _ = unstaging.await;
    }

    /// How long reads and writes took.
    pub(in crate::chunk) fn times(&self) -> &Times {
        self.counters.times()
    }

    pub fn usage(&self) -> CacheUsage {
        let mut usage = self.counters.usage();
        match &self.place {
            Place::Memory(memory, area) => {
                let holding = memory.holding(*area);
                (usage.blocks, usage.bytes) = (holding.blocks, holding.bytes);
                usage.memory_bytes = holding.bytes;
            }
            Place::Disks(disks) => {
                for shelf in disks.all() {
                    let books = shelf.disk.books();
                    let holding = books.ledger.holding(shelf.area.id);
                    let (blocks, bytes) = books.pending.holding(shelf.area.id);
                    usage.blocks += holding.blocks + blocks;
                    usage.bytes += holding.bytes + bytes;
                    usage.memory_bytes += bytes;
                    usage.staging_blocks += holding.staged_blocks;
                    usage.staging_block_bytes += holding.staged_bytes;
                    usage.is_short |= shelf.disk.is_full();
                }
            }
        }
        usage
    }

    /// Bounds what it may take when others need room; disks have equal parts of it.
    pub(in crate::chunk) fn set_share(&self, share: Option<u64>) {
        match &self.place {
            Place::Memory(memory, area) => memory.set_share(*area, share),
            Place::Disks(disks) => {
                let count = disks.all().count().max(1) as u64;
                for shelf in disks.all() {
                    let part = share.map(|share| share / count);
                    shelf.disk.books().ledger.set_share(shelf.area.id, part);
                }
            }
        }
    }

    /// The number of the directory that a block belongs to.
    #[cfg(test)]
    pub(super) fn shelf_number(&self, block: BlockKey) -> Option<usize> {
        let Place::Disks(disks) = &self.place else { return None };
        let owner = disks.owner(self.key(block))?.area.id;
        disks.shelves.iter().position(|shelf| shelf.as_ref().is_some_and(|s| s.area.id == owner))
    }

    async fn find(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        if !fits(block, &range) {
            return None;
        }
        let disks = match &self.place {
            Place::Memory(memory, area) => return memory.read(*area, block, &range),
            Place::Disks(disks) => disks,
        };
        let shelves: Vec<Shelf> = disks.candidates(self.key(block)).cloned().collect();
        for shelf in shelves {
            let read = match shelf.locate(block) {
                Known::Body(body) => Some(cut(&body, &range)),
                Known::OnDisk | Known::Perhaps => shelf.read(block, range.clone()).await,
                Known::Missing => None,
            };
            if read.is_some() {
                return read;
            }
        }
        None
    }

    /// The name of a block, for where it matters.
    fn key(&self, block: BlockKey) -> impl Fn() -> String + Copy {
        let layout = self.layout;
        move || layout.key(block)
    }

    /// Every disk, the one that should have the block first.
    fn shelves(&self, block: BlockKey) -> Vec<Shelf> {
        let Place::Disks(disks) = &self.place else { return Vec::new() };
        let owner = disks.owner(self.key(block)).map(|shelf| shelf.area.id);
        let mut shelves: Vec<Shelf> = disks.all().cloned().collect();
        shelves.sort_by_key(|shelf| Some(shelf.area.id) != owner);
        shelves
    }
}

impl Drop for VolumeCache {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        match &self.place {
            Place::Memory(memory, area) => memory.close(*area),
            Place::Disks(disks) => {
                for shelf in disks.all() {
                    shelf.disk.remove(shelf.area.id);
                }
            }
        }
    }
}

impl Disks {
    pub fn new(shelves: Vec<Option<Shelf>>) -> Self {
        let disks = Self { shelves, ring: RwLock::default() };
        disks.build_ring();
        disks
    }

    pub fn all(&self) -> impl Iterator<Item = &Shelf> {
        self.shelves.iter().flatten()
    }

    /// The disk that a block belongs to.
    fn owner(&self, key: impl Fn() -> String) -> Option<&Shelf> {
        if let [only] = &self.shelves[..] {
            return only.as_ref().filter(|shelf| shelf.disk.state() != State::Down);
        }
        let key = key();
        loop {
            let ring = self.ring.read();
            let number = ring.owner(&key)?;
            drop(ring);
            let shelf = self.shelves[number].as_ref()?;
            if shelf.disk.state() != State::Down {
                return Some(shelf);
            }
            self.build_ring();
        }
    }

    /// Where a block may be: where it belongs, then where an older client has put it.
    fn candidates(&self, key: impl Fn() -> String + Copy) -> impl Iterator<Item = &Shelf> {
        let owner = self.owner(key);
        let legacy = match &self.shelves[..] {
            // Also if it is given up: what is staged there is nowhere else.
            [only] => only.as_ref(),
            several => several[legacy_owner(&key(), several.len())].as_ref(),
        };
        let other =
            legacy.filter(|legacy| owner.is_none_or(|owner| owner.area.id != legacy.area.id));
        owner.into_iter().chain(other)
    }

    fn build_ring(&self) {
        let usable = self.shelves.iter().enumerate().filter_map(|(number, shelf)| {
            let shelf = shelf.as_ref().filter(|shelf| shelf.disk.state() != State::Down)?;
            Some((number, shelf.area.lock.as_str()))
        });
        let ring = Ring::new(&usable.collect::<Vec<_>>());
        *self.ring.write() = ring;
    }
}

fn fits(block: BlockKey, range: &Range<u32>) -> bool {
    range.start < range.end && range.end <= block.size
}

fn cut(body: &Bytes, range: &Range<u32>) -> Bytes {
    body.slice(range.start as usize..range.end as usize)
}
