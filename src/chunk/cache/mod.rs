//! The block cache: one set of disks, or memory, for all volumes of this process.
//!
//! Directories and files are compatible with JuiceFS: both clients can use one cache, even at the
//! same time. Knows blocks only by their keys. A failure here is a miss for readers and a dropped
//! block for writers. Only [`VolumeCache::stage`] returns errors, since its caller relies on the
//! outcome.

mod accounting;
mod block_file;
mod disk;
mod eviction;
mod glob;
mod hash_ring;
mod maintenance;
mod memory;
mod options;
mod owner;
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

use accounting::AccountId;
use disk::Disk;
use disk::free_space::{SpaceSource, Statvfs};
use disk::health::HealthState;
use disk::open_files::OpenFiles;
use disk::removal_queue::RemovalQueue;
use disk::scan::STALE_AFTER;
use disk::staging::StagingLimit;
use disk::volume_dir::VolumeDir;
use disk::volume_disk::VolumeDisk;
use maintenance::Maintenance;
use memory::Memory;
use usage::Counters;
use volume::{Backend, Disks};

pub use eviction::Eviction;
pub use options::{CacheOptions, Checksum};
pub use owner::CacheOwner;
pub use usage::CacheUsage;
pub use volume::VolumeCache;

use super::{Layout, Reserved};
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Bytes waiting to be written to the disks.
const MAX_PENDING: usize = 64 << 20;
/// How long `close` waits for running operations.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The block cache of this process.
pub struct Cache {
    shared: Arc<Shared>,
    dirs: Vec<PathBuf>,
    /// One per directory, in order; `None` if the directory cannot be used.
    disks: Vec<Option<Arc<Disk>>>,
    memory: Option<Arc<Memory>>,
    /// The reservation for blocks in memory.
    _reserved: Option<Reserved>,
    next_account: AtomicU32,
    /// By UUID and owner.
    volumes: Mutex<HashMap<(String, String), Weak<VolumeCache>>>,
    tasks: TaskTracker,
    end: CancellationToken,
    stop: Arc<AtomicBool>,
}

/// State shared by all volumes.
struct Shared {
    runtime: Handle,
    max_pending: usize,
    max_stage_write: usize,
    staging_limit: StagingLimit,
    removal_queue: Arc<RemovalQueue>,
    tasks: TaskTracker,
    closed: AtomicBool,
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl Cache {
    /// Opens the cache directories. A directory that cannot be used is skipped; if none can be
    /// used, blocks are cached in memory.
    pub async fn open(options: CacheOptions) -> Result<Arc<Self>> {
        Self::open_with(options, Arc::new(Statvfs)).await
    }

    async fn open_with(options: CacheOptions, space: Arc<dyn SpaceSource>) -> Result<Arc<Self>> {
        options.validate()?;
        let in_memory = options.dirs.is_empty() || options.size == 0;
        let opening = options.clone();
        let disks =
            spawn_blocking(
                move || if in_memory { Vec::new() } else { open_disks(&opening, &space) },
            );
        let disks = disks.await.map_err(|lost| Error::lost_task("opening the cache", &lost))?;
        let working: Vec<Arc<Disk>> = disks.iter().flatten().map(Arc::clone).collect();
        let (mut memory, mut reserved) = (None, None);
        if working.is_empty() {
            let mut size = if in_memory { options.size } else { options::FALLBACK_SIZE };
            if let Some(budget) = &options.memory {
                let most = budget.capacity() / 8;
                let bytes = usize::try_from(size).unwrap_or(usize::MAX).min(most);
                reserved = Some(budget.reserve(bytes).await);
                size = size.min(bytes as u64);
            }
            if !in_memory {
                tracing::warn!("no cache directory can be used: caching {size} bytes in memory");
            }
            memory = Some(Arc::new(Memory::new(size, options.items, options.eviction)));
        }
        let maintenance = Maintenance::new(working.clone(), memory.clone(), &options);
        let stop = Arc::clone(&maintenance.stop);
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(maintenance.run(end.clone()));
        let shared = Shared {
            runtime: Handle::current(),
            max_pending: MAX_PENDING / working.len().max(1),
            max_stage_write: options.max_stage_write,
            staging_limit: StagingLimit::default(),
            removal_queue: Arc::default(),
            tasks: tasks.clone(),
            closed: AtomicBool::new(false),
        };
        Ok(Arc::new(Self {
            shared: Arc::new(shared),
            dirs: if in_memory { Vec::new() } else { options.dirs },
            disks,
            memory,
            _reserved: reserved,
            next_account: AtomicU32::new(0),
            volumes: Mutex::default(),
            tasks,
            end,
            stop,
        }))
    }

    /// Opens the cache of one volume. `share` limits what it may take when other volumes need room;
    /// `None` is no limit. Opening the same volume again returns the same cache. Accesses the
    /// directories, so it may take a moment; their content is scanned in the background.
    pub fn volume(
        self: &Arc<Self>,
        uuid: &str,
        layout: Layout,
        share: Option<u64>,
    ) -> Result<Arc<VolumeCache>> {
        self.owned_volume(uuid, None, layout, share)
    }

    /// Opens a volume as [`Cache::volume`] does, for an owner. Owners never share blocks, even if
    /// their volumes have the same UUID.
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
                return Err(Error::bad_input(format!(
                    "volume {uuid} is already open with another block size or key layout"
                )));
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

    /// Returns the problems of the cache directories, one line each.
    pub fn problems(&self) -> Vec<String> {
        let lost = self.dirs.iter().zip(&self.disks).filter_map(|(dir, disk)| {
            let why = match disk.as_ref().map(|disk| disk.health_state()) {
                None => "cannot be used",
                Some(HealthState::Down) => "is no longer used after too many failures",
                Some(HealthState::Unstable) => "fails intermittently",
                Some(HealthState::Normal) => return None,
            };
            Some(format!("cache directory {} {why}", dir.display()))
        });
        lost.collect()
    }

    /// Writes pending blocks and ends all background work. Blocks put afterwards are dropped; reads
    /// still work.
    pub async fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        self.end.cancel();
        self.tasks.close();
        let ending = async {
            for disk in self.disks.iter().flatten() {
                loop {
                    let idle = disk.idle.notified();
                    if disk.lock_state().write_queue.is_idle() {
                        break;
                    }
                    idle.await;
                }
            }
            self.tasks.wait().await;
        };
        if timeout(CLOSE_TIMEOUT, ending).await.is_err() {
            tracing::warn!("a cache directory does not respond: closing without it");
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
        let backend = if let Some(memory) = &self.memory {
            let dir = self.next_account();
            memory.add(dir, share, Arc::clone(&counters));
            Backend::Memory(Arc::clone(memory), dir)
        } else {
            let disks = self.disks.iter();
            let volume_disks = disks
                .map(|disk| self.open_volume_disk(disk.as_ref()?, uuid, owner, layout, &counters));
            Backend::Disks(Disks::new(volume_disks.collect()))
        };
        let shared = Arc::clone(&self.shared);
        let volume = VolumeCache { shared, layout, counters, backend, closed: Arc::default() };
        volume.set_share(share);
        volume
    }

    fn open_volume_disk(
        &self,
        disk: &Arc<Disk>,
        uuid: &str,
        owner: Option<&CacheOwner>,
        layout: Layout,
        counters: &Arc<Counters>,
    ) -> Option<VolumeDisk> {
        let id = self.next_account();
        let dir = owner::directory(disk.dir(), uuid, owner, disk.modes)
            .and_then(|root| VolumeDir::open(root, id, layout, disk.modes, Arc::clone(counters)));
        let dir = dir.inspect_err(|error| {
            let dir = disk.dir().display();
            tracing::warn!("cache directory {dir} cannot be used for {uuid}: {error}");
        });
        let volume_disk = VolumeDisk { disk: Arc::clone(disk), dir: Arc::new(dir.ok()?) };
        disk.add(&volume_disk.dir);
        Some(volume_disk)
    }

    /// Scans the directories of a volume in the background.
    fn scan(&self, volume: &VolumeCache) {
        let Backend::Disks(disks) = &volume.backend else { return };
        for volume_disk in disks.all() {
            let (volume_disk, closed) = (volume_disk.clone(), Arc::clone(&volume.closed));
            let (tasks, runtime) = (self.tasks.clone(), self.shared.runtime.clone());
            let end = self.end.clone();
            let scan = move || {
                if !volume_disk.scan(&closed) {
                    return;
                }
                // Drafts of a process that died a moment ago would stay until the next scan, if
                // there is one.
                let later = async move {
                    if end.run_until_cancelled(sleep(STALE_AFTER)).await.is_some() {
                        let cleared =
                            spawn_blocking(move || volume_disk.remove_stale_drafts(&closed));
                        let _ = cleared.await;
                    }
                };
                tasks.spawn_on(later, &runtime);
            };
            self.tasks.spawn_blocking_on(scan, &self.shared.runtime);
        }
    }

    fn next_account(&self) -> AccountId {
        AccountId(self.next_account.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.end.cancel();
    }
}

fn open_disks(options: &CacheOptions, space: &Arc<dyn SpaceSource>) -> Vec<Option<Arc<Disk>>> {
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
