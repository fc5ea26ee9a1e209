//! One cache disk: what lies on it, its limits, and its health.

pub mod free_space;
pub mod health;
pub mod open_files;
pub mod removal_queue;
pub mod scan;
pub mod staging;
pub mod volume_dir;
pub mod volume_disk;
pub mod write_queue;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, path::Path};

use rustix::io::Errno;
use tokio::sync::{Notify, Semaphore};

use super::accounting::{AccountId, Accounting};
use super::block_file::{self, Modes};
use super::eviction::{Eviction, Victim};
use super::options::{CacheOptions, Checksum};
use crate::sync::{Mutex, MutexGuard};
use free_space::{SpaceSource, fraction};
use health::{Health, HealthState};
use open_files::OpenFiles;
use volume_dir::VolumeDir;
use write_queue::WriteQueue;

/// Counted for each block besides its bytes, as JuiceFS does.
const OVERHEAD: u64 = 4096;
/// An operation that does not return for this long counts as failed.
pub const DISK_TIMEOUT: Duration = Duration::from_secs(30);
/// Concurrent reads on one disk.
const MAX_READS: usize = 32;

pub struct Disk {
    dir: PathBuf,
    pub modes: Modes,
    pub checksum: Checksum,
    pub eviction: Eviction,
    pub(super) capacity: u64,
    pub(super) items: u64,
    pub(super) free_ratio: f32,
    pub(super) space: Arc<dyn SpaceSource>,
    pub files: Arc<OpenFiles>,
    state: Mutex<DiskState>,
    volume_dirs: Mutex<BTreeMap<AccountId, Arc<VolumeDir>>>,
    health: Mutex<Health>,
    running: Mutex<RunningOperations>,
    /// A copy of the state in `health`, readable without its lock.
    health_state: AtomicU8,
    pub(super) is_full: AtomicBool,
    pub(super) is_full_for_staging: AtomicBool,
    pub reads: Semaphore,
    /// Notified when the last writer has nothing left to write.
    pub idle: Notify,
}

/// Running operations and when each began.
#[derive(Default)]
struct RunningOperations {
    since: BTreeMap<u64, Instant>,
    next: u64,
}

impl RunningOperations {
    fn begin(&mut self, now: Instant) -> u64 {
        self.next += 1;
        self.since.insert(self.next, now);
        self.next
    }

    fn end(&mut self, number: u64) {
        self.since.remove(&number);
    }

    /// Returns how many operations have exceeded the timeout since the last call.
    fn take_overdue(&mut self, now: Instant) -> usize {
        let before = self.since.len();
        self.since.retain(|_, since| now.duration_since(*since) < DISK_TIMEOUT);
        before - self.since.len()
    }
}

/// The blocks on the disk and those waiting to be written to it.
pub struct DiskState {
    pub accounting: Accounting,
    pub write_queue: WriteQueue,
}

impl Disk {
    /// Opens a cache directory, which must be writable, with its part of the limits.
    pub fn open(
        dir: PathBuf,
        options: &CacheOptions,
        space: Arc<dyn SpaceSource>,
        files: Arc<OpenFiles>,
    ) -> io::Result<Self> {
        let modes = Modes { file: options.mode };
        block_file::make_dirs(&dir, modes)?;
        block_file::try_writing(&dir, modes)?;
        let found = space.disk_space(&dir)?;
        let usable = |total: u64| fraction(total, 1.0 - options.free_ratio);
        let dirs = options.dirs.len().max(1) as u64;
        let mut items = if options.items == 0 { u64::MAX } else { (options.items / dirs).max(1) };
        if found.inodes > 0 {
            items = items.min(usable(found.inodes));
        }
        let state = DiskState {
            accounting: Accounting::new(options.eviction, OVERHEAD),
            write_queue: WriteQueue::default(),
        };
        Ok(Self {
            dir,
            modes,
            checksum: options.checksum,
            eviction: options.eviction,
            capacity: (options.size / dirs).min(usable(found.bytes)),
            items,
            free_ratio: options.free_ratio,
            space,
            files,
            state: Mutex::new(state),
            volume_dirs: Mutex::default(),
            health: Mutex::new(Health::new(Instant::now())),
            running: Mutex::default(),
            health_state: AtomicU8::new(0),
            is_full: AtomicBool::new(found.is_short(options.free_ratio)),
            is_full_for_staging: AtomicBool::new(found.is_short(options.free_ratio / 2.0)),
            reads: Semaphore::new(MAX_READS),
            idle: Notify::new(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn lock_state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock()
    }

    pub fn add(&self, dir: &Arc<VolumeDir>) {
        self.volume_dirs.lock().insert(dir.id, Arc::clone(dir));
        self.lock_state().accounting.open(dir.id, None, false);
    }

    pub fn remove(&self, id: AccountId) {
        self.volume_dirs.lock().remove(&id);
        self.lock_state().accounting.close(id);
        self.files.close_volume(id);
    }

    pub fn volume_dirs(&self) -> Vec<Arc<VolumeDir>> {
        self.volume_dirs.lock().values().map(Arc::clone).collect()
    }

    /// Whether the disk has no room for blocks, even after eviction.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub fn is_full_for_staging(&self) -> bool {
        self.is_full_for_staging.load(Ordering::Relaxed)
    }

    /// Whether another block would exceed the limits. Only matters if nothing is evicted.
    pub fn is_at_limit(&self, state: &DiskState, size: u32) -> bool {
        let bytes = state.accounting.bytes() + u64::from(size) + OVERHEAD;
        bytes > self.capacity || state.accounting.blocks() >= self.items
    }

    pub fn health_state(&self) -> HealthState {
        match self.health_state.load(Ordering::Relaxed) {
            0 => HealthState::Normal,
            1 => HealthState::Unstable,
            _ => HealthState::Down,
        }
    }

    /// Runs an operation on the disk, if the health of the disk allows it, and records the outcome.
    pub fn attempt<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !self.health.lock().begin() {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "the disk is failing"));
        }
        let running = self.running.lock().begin(Instant::now());
        let outcome = work();
        self.running.lock().end(running);
        self.record(outcome.as_ref().is_err_and(is_disk_failure));
        self.health.lock().end();
        outcome
    }

    /// Records the outcome of an operation; one that did not return in time counts as failed.
    pub fn record(&self, failed: bool) {
        if failed || self.health_state() != HealthState::Normal {
            let change = self.health.lock().record(failed, Instant::now());
            self.enter(change);
        }
    }

    /// Records overdue operations as failed and advances the health of the disk. Never waits.
    pub fn tick(&self) {
        let overdue = self.running.lock().take_overdue(Instant::now());
        for _ in 0..overdue {
            self.record(true);
        }
        let change = self.health.lock().tick(Instant::now());
        self.enter(change);
    }

    /// Removes the files of blocks that are no longer in the accounting.
    pub fn remove_files(&self, victims: &[Victim]) {
        let volume_dirs = self.volume_dirs.lock().clone();
        for Victim { account, block } in victims {
            let Some(dir) = volume_dirs.get(account) else { continue };
            dir.counters.evicted(1);
            // A file that cannot be removed is found again by the next scan.
            let _ = self.attempt(|| fs::remove_file(dir.cached_path(*block)));
            self.files.forget(dir.id, *block);
        }
    }

    #[cfg(test)]
    pub fn mark_down(&self) {
        let state = self.health.lock().mark_down();
        self.enter(Some(state));
    }

    fn enter(&self, change: Option<HealthState>) {
        let Some(state) = change else { return };
        let number = match state {
            HealthState::Normal => 0,
            HealthState::Unstable => 1,
            HealthState::Down => 2,
        };
        self.health_state.store(number, Ordering::Relaxed);
        let dir = self.dir.display();
        match state {
            HealthState::Normal => tracing::info!("cache directory {dir} works again"),
            HealthState::Unstable => {
                tracing::warn!("cache directory {dir} fails too often: limiting its use");
            }
            HealthState::Down => {
                tracing::error!("cache directory {dir} keeps failing: no longer using it");
            }
        }
    }
}

/// Returns the seconds since 1970.
pub fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(now).unwrap_or(u32::MAX)
}

/// Whether an error indicates a failing disk, and not just one bad file or a passing condition.
fn is_disk_failure(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let bad = [Errno::IO, Errno::NODEV, Errno::NXIO, Errno::UCLEAN, Errno::STALE];
    errno.is_some_and(|errno| bad.contains(&errno))
}
