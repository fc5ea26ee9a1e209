//! The block cache: one set of disks, or memory, for all volumes of this process.
//!
//! Directories and files are those of JuiceFS, so a cache that one client has filled serves the
//! other, at the same time too. Knows blocks by their names, nothing of slices in a bucket, and
//! nothing of who reads. Whatever fails here is a miss for readers and a drop for writers; only
//! [`VolumeCache::stage`] answers with an error, since there the caller counts on it.

mod area;
mod disk;
mod file;
mod footer;
mod glob;
mod health;
mod index;
mod layout;
mod ledger;
mod memory;
mod opened;
mod options;
mod owner;
mod pending;
mod removal;
mod ring;
mod scan;
mod shelf;
mod space;
mod stage;
mod upkeep;
mod usage;
mod volume;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use area::Area;
use disk::Disk;
use health::State;
use ledger::AreaId;
use memory::Memory;
use opened::OpenFiles;
use removal::Removals;
use scan::LEFT_BEHIND;
use shelf::Shelf;
use space::{Space, Statvfs};
use stage::Staging;
use upkeep::Upkeep;
use usage::Counters;
use volume::{Disks, Place};

pub use options::{CacheOptions, Checksum, Eviction};
pub use owner::CacheOwner;
pub use usage::CacheUsage;
pub use volume::VolumeCache;

use super::{Layout, Reserved};
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Bytes on their way to the disks.
const MAX_PENDING: usize = 64 << 20;
/// For what is under way when the cache is closed.
const CLOSING: Duration = Duration::from_secs(30);

/// The block cache of this process.
pub struct Cache {
    common: Arc<Common>,
    dirs: Vec<PathBuf>,
    /// One for each directory, in their order; none where it cannot be used.
    disks: Vec<Option<Arc<Disk>>>,
    memory: Option<Arc<Memory>>,
    /// What blocks in memory lie in.
    _room: Option<Reserved>,
    next_area: AtomicU32,
    /// By UUID and owner.
    volumes: Mutex<HashMap<(String, String), Weak<VolumeCache>>>,
    tasks: TaskTracker,
    end: CancellationToken,
    stop: Arc<AtomicBool>,
}

/// What the volumes share.
struct Common {
    runtime: Handle,
    max_pending: usize,
    max_stage_write: usize,
    staging: Staging,
    removals: Arc<Removals>,
    tasks: TaskTracker,
    closed: AtomicBool,
}

impl Common {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl Cache {
    /// Opens the directories. One that cannot be used is left out; if none can, blocks are kept in
    /// memory.
    pub async fn open(options: CacheOptions) -> Result<Arc<Self>> {
        Self::open_with(options, Arc::new(Statvfs)).await
    }

    async fn open_with(options: CacheOptions, space: Arc<dyn Space>) -> Result<Arc<Self>> {
        options.validate()?;
        let in_memory = options.dirs.is_empty() || options.size == 0;
        let opening = options.clone();
        let disks =
            spawn_blocking(
                move || if in_memory { Vec::new() } else { open_disks(&opening, &space) },
            );
        let disks = disks.await.map_err(|lost| Error::lost_task("opening the cache", &lost))?;
        let working: Vec<Arc<Disk>> = disks.iter().flatten().map(Arc::clone).collect();
        let (mut memory, mut room) = (None, None);
        if working.is_empty() {
            let mut size = if in_memory { options.size } else { options::FALLBACK_SIZE };
            if let Some(budget) = &options.memory {
                let most = budget.capacity() / 8;
                let reserved = usize::try_from(size).unwrap_or(usize::MAX).min(most);
                room = Some(budget.reserve(reserved).await);
                size = size.min(reserved as u64);
            }
            if !in_memory {
                tracing::warn!("no cache directory can be used: caching {size} bytes in memory");
            }
            memory = Some(Arc::new(Memory::new(size, options.items, options.eviction)));
        }
        let upkeep = Upkeep::new(working.clone(), memory.clone(), &options);
        let stop = Arc::clone(&upkeep.stop);
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(upkeep.run(end.clone()));
        let common = Common {
            runtime: Handle::current(),
            max_pending: MAX_PENDING / working.len().max(1),
            max_stage_write: options.max_stage_write,
            staging: Staging::default(),
            removals: Arc::default(),
            tasks: tasks.clone(),
            closed: AtomicBool::new(false),
        };
        Ok(Arc::new(Self {
            common: Arc::new(common),
            dirs: if in_memory { Vec::new() } else { options.dirs },
            disks,
            memory,
            _room: room,
            next_area: AtomicU32::new(0),
            volumes: Mutex::default(),
            tasks,
            end,
            stop,
        }))
    }

    /// The part of one volume; `share` bounds what it may take when others need room (none: all).
    /// The same volume, opened again, gets the same part. Looks at the directories, so that it may
    /// take a moment; what lies in them is found in the background.
    pub fn volume(
        self: &Arc<Self>,
        uuid: &str,
        layout: Layout,
        share: Option<u64>,
    ) -> Result<Arc<VolumeCache>> {
        self.owned_volume(uuid, None, layout, share)
    }

    /// As [`Cache::volume`], for an owner that shares no part with another, whatever its volume's UUID
    /// is.
    pub fn owned_volume(
        self: &Arc<Self>,
        uuid: &str,
        owner: Option<&CacheOwner>,
        layout: Layout,
        share: Option<u64>,
    ) -> Result<Arc<VolumeCache>> {
        if uuid.is_empty() || uuid.starts_with('.') || uuid.contains(['/', '\0']) {
            return Err(Error::bad_input(format!("{uuid:?} cannot name a cache directory")));
        }
        let mut volumes = self.volumes.lock();
        volumes.retain(|_, volume| volume.strong_count() > 0);
        let key = (uuid.to_owned(), owner.map_or_else(String::new, |owner| owner.id.clone()));
        if let Some(volume) = volumes.get(&key).and_then(Weak::upgrade) {
            if volume.layout != layout {
                return Err(Error::bad_input(format!("volume {uuid} is open with other blocks")));
            }
            volume.set_share(share);
            return Ok(volume);
        }
        for disk in self.disks.iter().flatten() {
            owner::check_staged(disk.dir(), uuid, owner)?;
        }
        let volume = Arc::new(self.open_volume(uuid, owner, layout, share));
        volumes.insert(key, Arc::downgrade(&volume));
        drop(volumes);
        self.scan(&volume);
        Ok(volume)
    }

    /// What is wrong with its directories, one line each.
    pub fn troubles(&self) -> Vec<String> {
        let lost = self.dirs.iter().zip(&self.disks).filter_map(|(dir, disk)| {
            let why = match disk.as_ref().map(|disk| disk.state()) {
                None => "cannot be used",
                Some(State::Down) => "was given up after too many failures",
                Some(State::Unstable) => "fails now and then",
                Some(State::Normal) => return None,
            };
            Some(format!("cache directory {} {why}", dir.display()))
        });
        lost.collect()
    }

    /// Writes what is pending and ends all that runs in the background. What is put after is
    /// dropped; reading goes on.
    pub async fn close(&self) {
        self.common.closed.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        self.end.cancel();
        self.tasks.close();
        let ending = async {
            for disk in self.disks.iter().flatten() {
                loop {
                    let idle = disk.idle.notified();
                    if disk.books().pending.is_idle() {
                        break;
                    }
                    idle.await;
                }
            }
            self.tasks.wait().await;
        };
        if timeout(CLOSING, ending).await.is_err() {
            tracing::warn!("a cache directory does not answer: closed without it");
        }
    }

    fn open_volume(
        &self,
        uuid: &str,
        owner: Option<&CacheOwner>,
        layout: Layout,
        share: Option<u64>,
    ) -> VolumeCache {
        let counters: Arc<Counters> = Arc::default();
        let place = if let Some(memory) = &self.memory {
            let area = self.next_area();
            memory.add(area, share, Arc::clone(&counters));
            Place::Memory(Arc::clone(memory), area)
        } else {
            let disks = self.disks.iter();
            let shelves =
                disks.map(|disk| self.open_shelf(disk.as_ref()?, uuid, owner, layout, &counters));
            Place::Disks(Disks::new(shelves.collect()))
        };
        let common = Arc::clone(&self.common);
        let volume = VolumeCache { common, layout, counters, place, closed: Arc::default() };
        volume.set_share(share);
        volume
    }

    fn open_shelf(
        &self,
        disk: &Arc<Disk>,
        uuid: &str,
        owner: Option<&CacheOwner>,
        layout: Layout,
        counters: &Arc<Counters>,
    ) -> Option<Shelf> {
        let id = self.next_area();
        let area = owner::directory(disk.dir(), uuid, owner, disk.modes)
            .and_then(|root| Area::open(root, id, layout, disk.modes, Arc::clone(counters)));
        let area = area.inspect_err(|error| {
            let dir = disk.dir().display();
            tracing::warn!("cache directory {dir} cannot be used for {uuid}: {error}");
        });
        let shelf = Shelf { disk: Arc::clone(disk), area: Arc::new(area.ok()?) };
        disk.add(&shelf.area);
        Some(shelf)
    }

    /// Finds out in the background what is there.
    fn scan(&self, volume: &VolumeCache) {
        let Place::Disks(disks) = &volume.place else { return };
        for shelf in disks.all() {
            let (shelf, closed) = (shelf.clone(), Arc::clone(&volume.closed));
            let (tasks, runtime) = (self.tasks.clone(), self.common.runtime.clone());
            let end = self.end.clone();
            let scan = move || {
                if !shelf.scan(&closed) {
                    return;
                }
                // What a process left that died a moment ago would stay until the next scan, if any.
                let later = async move {
                    if end.run_until_cancelled(sleep(LEFT_BEHIND)).await.is_some() {
                        let cleared = spawn_blocking(move || shelf.clear_drafts(&closed));
                        let _ = cleared.await;
                    }
                };
                tasks.spawn_on(later, &runtime);
            };
            self.tasks.spawn_blocking_on(scan, &self.common.runtime);
        }
    }

    fn next_area(&self) -> AreaId {
        AreaId(self.next_area.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.end.cancel();
    }
}

fn open_disks(options: &CacheOptions, space: &Arc<dyn Space>) -> Vec<Option<Arc<Disk>>> {
    let files = Arc::new(OpenFiles::new());
    let open = |dir: &std::path::PathBuf| {
        let disk = Disk::open(dir.clone(), options, Arc::clone(space), Arc::clone(&files));
        match disk {
            Ok(disk) => Some(Arc::new(disk)),
            Err(error) => {
                tracing::warn!("cache directory {} cannot be used: {error}", dir.display());
                None
            }
        }
    };
    options.dirs.iter().map(open).collect()
}
