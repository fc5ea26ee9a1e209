//! The cache of one volume: finds the disk of a block, and counts hits and misses.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::Shared;
use super::accounting::AccountId;
use super::hash_ring::{HashRing, legacy_owner};
use super::memory::Memory;
use super::usage::{CacheUsage, Counters, Latencies};
use crate::chunk::cache::disk::health::HealthState;
use crate::chunk::cache::disk::removal_queue::Removal;
use crate::chunk::cache::disk::volume_disk::{Lookup, VolumeDisk};
use crate::chunk::{BlockKey, Layout};
use crate::error::{Error, Result, joined};
use crate::sync::RwLock;

/// The part of one volume in a [`super::Cache`].
pub struct VolumeCache {
    pub(super) shared: Arc<Shared>,
    pub(super) layout: Layout,
    pub(super) counters: Arc<Counters>,
    pub(super) backend: Backend,
    /// Ends the scans of this volume.
    pub(super) closed: Arc<AtomicBool>,
}

/// Where the blocks are.
pub(super) enum Backend {
    Disks(Disks),
    Memory(Arc<Memory>, AccountId),
}

/// One [`VolumeDisk`] per directory, in order; `None` if it could not be opened.
pub(super) struct Disks {
    volume_disks: Vec<Option<VolumeDisk>>,
    ring: RwLock<HashRing>,
}

impl VolumeCache {
    /// Reads bytes `range` of a block. Returns `None` if it is not cached or is damaged.
    pub async fn read(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        let (begun, length) = (Instant::now(), range.end.saturating_sub(range.start));
        let read = self.find(block, range).await;
        match &read {
            Some(bytes) => self.counters.hit(bytes.len(), begun.elapsed()),
            None => self.counters.miss(length),
        }
        read
    }

    /// Reads as [`VolumeCache::read`] does, without waiting: from memory, or from an open file in
    /// the page cache. After `None`, `read` may still find the block.
    pub fn read_now(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        if !fits(block, &range) {
            return None;
        }
        let begun = Instant::now();
        let read = match &self.backend {
            Backend::Memory(memory, id) => memory.read(*id, block, &range),
            Backend::Disks(disks) => {
                let volume_disk = disks.owner(self.key(block))?;
                match volume_disk.locate(block) {
                    Lookup::Pending(body) => Some(cut(&body, &range)),
                    Lookup::OnDisk | Lookup::Unknown => volume_disk.read_now(block, &range),
                    Lookup::Missing => None,
                }
            }
        };
        if let Some(bytes) = &read {
            self.counters.hit(bytes.len(), begun.elapsed());
        }
        read
    }

    /// Caches a block. Never waits: if the disk is too slow, the block is dropped.
    pub fn put(&self, block: BlockKey, body: Bytes) {
        if body.is_empty() || body.len() != block.size as usize || self.shared.is_closed() {
            return;
        }
        match &self.backend {
            Backend::Memory(memory, id) => memory.put(*id, block, &body, &self.counters),
            Backend::Disks(disks) => match disks.owner(self.key(block)) {
                Some(volume_disk) => {
                    volume_disk.put(block, body, self.shared.max_pending, &self.shared.runtime);
                }
                None => self.counters.dropped(),
            },
        }
    }

    /// Whether the block is known to be cached. Until the first scan ends, a cached block may not
    /// be known yet.
    pub fn contains(&self, block: BlockKey) -> bool {
        match &self.backend {
            Backend::Memory(memory, id) => memory.contains(*id, block),
            Backend::Disks(disks) => {
                disks.candidates(self.key(block)).any(|volume_disk| volume_disk.knows(block))
            }
        }
    }

    /// Returns where a block is known to be cached: the volume's directory on a disk, or `memory`.
    pub fn location_of(&self, block: BlockKey) -> Option<String> {
        match &self.backend {
            Backend::Memory(memory, id) => memory.contains(*id, block).then(|| "memory".to_owned()),
            Backend::Disks(disks) => {
                let volume_disk = disks
                    .candidates(self.key(block))
                    .find(|volume_disk| volume_disk.knows(block))?;
                Some(volume_disk.dir.root().display().to_string())
            }
        }
    }

    /// Removes a block that the volume no longer has, staged or not.
    pub fn remove(&self, block: BlockKey) {
        match &self.backend {
            Backend::Memory(memory, id) => memory.remove(*id, block),
            Backend::Disks(disks) => {
                let volume_disks = disks.candidates(self.key(block)).cloned();
                let forgotten = volume_disks.map(|volume_disk| {
                    let staged = volume_disk.forget(block);
                    (volume_disk, staged)
                });
                let removal = Removal { block, volume_disks: forgotten.collect() };
                let Shared { removal_queue, tasks, runtime, .. } = &*self.shared;
                removal_queue.add(removal, tasks, runtime);
            }
        }
    }

    /// Stages a block (writeback): it survives the end of this process, and a crash of the machine
    /// after [`VolumeCache::sync_staged`]. After an error, the caller uploads it at once.
    pub async fn stage(&self, block: BlockKey, body: &Bytes, tier: u8) -> Result<()> {
        let key = self.layout.key(block);
        let refused = |cause: &str| Error::Storage {
            place: "cache".to_owned(),
            action: "stage",
            key: key.clone(),
            cause: cause.to_owned(),
        };
        if body.is_empty() || body.len() != block.size as usize {
            return Err(refused("the body does not have the length of the block"));
        }
        let Backend::Disks(disks) = &self.backend else {
            return Err(refused("the cache is in memory"));
        };
        let volume_disk =
            disks.owner(self.key(block)).ok_or_else(|| refused("no disk is usable"))?.clone();
        if let Some(cause) = volume_disk.refuses_staging() {
            return Err(refused(cause));
        }
        let shared = Arc::clone(&self.shared);
        let Some(_place) = shared.staging_limit.enter(shared.max_stage_write) else {
            return Err(refused("too many blocks are being staged"));
        };
        let _counted = self.counters.staging();
        let body = body.clone();
        let staged = spawn_blocking(move || volume_disk.stage(block, &body, tier));
        joined("staging a block", staged).await
    }

    /// Makes staged blocks survive a crash of the machine.
    pub async fn sync_staged(&self, blocks: Vec<BlockKey>) -> Result<()> {
        let Backend::Disks(disks) = &self.backend else { return Ok(()) };
        let disks: Vec<_> = disks.all().cloned().collect();
        let synced = spawn_blocking(move || {
            let mut outcome = Ok(());
            // A failure of one disk does not stop the others.
            for disk in &disks {
                outcome = outcome.and(disk.sync_staged(&blocks));
            }
            outcome
        });
        let synced =
            synced.await.map_err(|lost| Error::lost_task("syncing staged blocks", &lost))?;
        synced.map_err(|error| Error::Storage {
            place: "cache".to_owned(),
            action: "sync",
            key: "staged blocks".to_owned(),
            cause: error.to_string(),
        })
    }

    /// Returns all blocks that are staged and not uploaded, with their tiers, as found on the
    /// disks. Includes those of earlier runs.
    pub async fn staged(&self) -> Vec<(BlockKey, u8)> {
        let Backend::Disks(disks) = &self.backend else { return Vec::new() };
        let mut all = Vec::new();
        for volume_disk in disks.all() {
            let (volume_disk, closed) = (volume_disk.clone(), Arc::clone(&self.closed));
            all.extend(
                spawn_blocking(move || volume_disk.staged(&closed)).await.unwrap_or_default(),
            );
        }
        all
    }

    /// Reads a staged block and its tier, and verifies it.
    pub async fn read_staged(&self, block: BlockKey) -> Result<(Bytes, u8)> {
        let volume_disks = self.volume_disks(block);
        let read = spawn_blocking(move || {
            let mut outcome = Err(Error::NotFound);
            for volume_disk in volume_disks {
                outcome = volume_disk.read_staged(block);
                if !matches!(outcome, Err(Error::NotFound)) {
                    break;
                }
            }
            outcome
        });
        joined("reading a staged block", read).await
    }

    /// Marks a block as uploaded: no longer staged, still cached.
    pub async fn unstage(&self, block: BlockKey) {
        let volume_disks = self.volume_disks(block);
        let unstaging = spawn_blocking(move || {
            let _ = volume_disks.iter().any(|volume_disk| volume_disk.unstage(block));
        });
        // If this process ends first, the block is uploaded once more.
        let _ = unstaging.await;
    }

    /// Returns the histograms of the duration of reads and writes.
    pub(in crate::chunk) fn latencies(&self) -> &Latencies {
        self.counters.latencies()
    }

    pub fn usage(&self) -> CacheUsage {
        let mut usage = self.counters.usage();
        match &self.backend {
            Backend::Memory(memory, id) => {
                let held = memory.usage(*id);
                (usage.blocks, usage.bytes) = (held.blocks, held.bytes);
                usage.memory_bytes = held.bytes;
            }
            Backend::Disks(disks) => {
                for volume_disk in disks.all() {
                    let state = volume_disk.disk.lock_state();
                    let held = state.accounting.usage(volume_disk.dir.id);
                    let (blocks, bytes) = state.write_queue.usage(volume_disk.dir.id);
                    usage.blocks += held.blocks + blocks;
                    usage.bytes += held.bytes + bytes;
                    usage.memory_bytes += bytes;
                    usage.staging_blocks += held.staged_blocks;
                    usage.staging_block_bytes += held.staged_bytes;
                    usage.is_short |= volume_disk.disk.is_full();
                }
            }
        }
        usage
    }

    /// Limits what the volume may take when others need room, in equal parts on all disks.
    pub(in crate::chunk) fn set_share(&self, share: Option<u64>) {
        match &self.backend {
            Backend::Memory(memory, id) => memory.set_share(*id, share),
            Backend::Disks(disks) => {
                let count = disks.all().count().max(1) as u64;
                for volume_disk in disks.all() {
                    let part = share.map(|share| share / count);
                    volume_disk.disk.lock_state().accounting.set_share(volume_disk.dir.id, part);
                }
            }
        }
    }

    /// Returns the number of the directory that a block belongs to.
    #[cfg(test)]
    pub(super) fn disk_number(&self, block: BlockKey) -> Option<usize> {
        let Backend::Disks(disks) = &self.backend else { return None };
        let owner = disks.owner(self.key(block))?.dir.id;
        disks
            .volume_disks
            .iter()
            .position(|volume_disk| volume_disk.as_ref().is_some_and(|s| s.dir.id == owner))
    }

    async fn find(&self, block: BlockKey, range: Range<u32>) -> Option<Bytes> {
        if !fits(block, &range) {
            return None;
        }
        let disks = match &self.backend {
            Backend::Memory(memory, id) => return memory.read(*id, block, &range),
            Backend::Disks(disks) => disks,
        };
        let volume_disks: Vec<VolumeDisk> = disks.candidates(self.key(block)).cloned().collect();
        for volume_disk in volume_disks {
            let read = match volume_disk.locate(block) {
                Lookup::Pending(body) => Some(cut(&body, &range)),
                Lookup::OnDisk | Lookup::Unknown => volume_disk.read(block, range.clone()).await,
                Lookup::Missing => None,
            };
            if read.is_some() {
                return read;
            }
        }
        None
    }

    /// Returns the key of a block, computed only when needed.
    fn key(&self, block: BlockKey) -> impl Fn() -> String + Copy {
        let layout = self.layout;
        move || layout.key(block)
    }

    /// Returns every disk, starting with the one that the block belongs to.
    fn volume_disks(&self, block: BlockKey) -> Vec<VolumeDisk> {
        let Backend::Disks(disks) = &self.backend else { return Vec::new() };
        let owner = disks.owner(self.key(block)).map(|volume_disk| volume_disk.dir.id);
        let mut volume_disks: Vec<VolumeDisk> = disks.all().cloned().collect();
        volume_disks.sort_by_key(|volume_disk| Some(volume_disk.dir.id) != owner);
        volume_disks
    }
}

impl Drop for VolumeCache {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        match &self.backend {
            Backend::Memory(memory, id) => memory.close(*id),
            Backend::Disks(disks) => {
                for volume_disk in disks.all() {
                    volume_disk.disk.remove(volume_disk.dir.id);
                }
            }
        }
    }
}

impl Disks {
    pub fn new(volume_disks: Vec<Option<VolumeDisk>>) -> Self {
        let disks = Self { volume_disks, ring: RwLock::default() };
        disks.build_ring();
        disks
    }

    pub fn all(&self) -> impl Iterator<Item = &VolumeDisk> {
        self.volume_disks.iter().flatten()
    }

    /// Returns the disk that a block belongs to.
    fn owner(&self, key: impl Fn() -> String) -> Option<&VolumeDisk> {
        if let [only] = &self.volume_disks[..] {
            return only
                .as_ref()
                .filter(|volume_disk| volume_disk.disk.health_state() != HealthState::Down);
        }
        let key = key();
        loop {
            let ring = self.ring.read();
            let number = ring.owner(&key)?;
            drop(ring);
            let volume_disk = self.volume_disks[number].as_ref()?;
            if volume_disk.disk.health_state() != HealthState::Down {
                return Some(volume_disk);
            }
            self.build_ring();
        }
    }

    /// Returns the disks where a block may be: where it belongs, then where an older client stored
    /// it.
    fn candidates(&self, key: impl Fn() -> String + Copy) -> impl Iterator<Item = &VolumeDisk> {
        let owner = self.owner(key);
        let legacy = match &self.volume_disks[..] {
            // Even if the disk is down: staged blocks on it are nowhere else.
            [only] => only.as_ref(),
            several => several[legacy_owner(&key(), several.len())].as_ref(),
        };
        let other = legacy.filter(|legacy| owner.is_none_or(|owner| owner.dir.id != legacy.dir.id));
        owner.into_iter().chain(other)
    }

    fn build_ring(&self) {
        let usable = self.volume_disks.iter().enumerate().filter_map(|(number, volume_disk)| {
            let volume_disk = volume_disk
                .as_ref()
                .filter(|volume_disk| volume_disk.disk.health_state() != HealthState::Down)?;
            Some((number, volume_disk.dir.lock.as_str()))
        });
        let ring = HashRing::new(&usable.collect::<Vec<_>>());
        *self.ring.write() = ring;
    }
}

fn fits(block: BlockKey, range: &Range<u32>) -> bool {
    range.start < range.end && range.end <= block.size
}

fn cut(body: &Bytes, range: &Range<u32>) -> Bytes {
    body.slice(range.start as usize..range.end as usize)
}
