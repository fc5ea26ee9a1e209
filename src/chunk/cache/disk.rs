//! One disk: its books, its health, its limits, and the room that is made on it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, path::Path};

use rustix::io::Errno;
use tokio::sync::{Notify, Semaphore};

use super::area::Area;
use super::file::{self, Modes};
use super::health::{Health, State};
use super::ledger::{AreaId, Goal, Ledger};
use super::opened::OpenFiles;
use super::options::{CacheOptions, Checksum, Eviction};
use super::pending::Pending;
use super::space::{Space, part};
use crate::chunk::BlockKey;
use crate::sync::{Mutex, MutexGuard};

/// Counted for each block besides its bytes, as JuiceFS does.
const OVERHEAD: u64 = 4096;
/// A disk that does not answer for that long counts as failing.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Reads at the same time on one disk.
const MAX_READS: usize = 32;
/// Blocks that are given up in one go, between which others get at the books.
const BATCH: usize = 256;

pub struct Disk {
    dir: PathBuf,
    pub modes: Modes,
    pub checksum: Checksum,
    pub eviction: Eviction,
    capacity: u64,
    items: u64,
    free_ratio: f32,
    space: Arc<dyn Space>,
    pub files: Arc<OpenFiles>,
    books: Mutex<Books>,
    areas: Mutex<BTreeMap<AreaId, Arc<Area>>>,
    health: Mutex<Health>,
    /// What is under way, by when it began.
    running: Mutex<Running>,
    state: AtomicU8,
    is_full: AtomicBool,
    is_full_for_staging: AtomicBool,
    pub reads: Semaphore,
    /// Told when the last writer has nothing left to do.
    pub idle: Notify,
}

/// Operations under way.
#[derive(Default)]
struct Running {
    since: BTreeMap<u64, Instant>,
    next: u64,
}

impl Running {
    fn begin(&mut self, now: Instant) -> u64 {
        self.next += 1;
        self.since.insert(self.next, now);
        self.next
    }

    fn end(&mut self, number: u64) {
        self.since.remove(&number);
    }

    /// How many have become overdue since the last time.
    fn take_overdue(&mut self, now: Instant) -> usize {
        let before = self.since.len();
        self.since.retain(|_, since| now.duration_since(*since) < MAX_WAIT);
        before - self.since.len()
    }
}

/// What lies on the disk and what is on its way there.
pub struct Books {
    pub ledger: Ledger,
    pub pending: Pending,
}

impl Disk {
    /// A directory that can be used, and its part of the limits.
    pub fn open(
        dir: PathBuf,
        options: &CacheOptions,
        space: Arc<dyn Space>,
        files: Arc<OpenFiles>,
    ) -> io::Result<Self> {
        let modes = Modes { file: options.mode };
        file::make_dirs(&dir, modes)?;
        file::try_writing(&dir, modes)?;
        let room = space.room(&dir)?;
        let usable = |total: u64| part(total, 1.0 - options.free_ratio);
        let dirs = options.dirs.len().max(1) as u64;
        let mut items = if options.items == 0 { u64::MAX } else { (options.items / dirs).max(1) };
        if room.inodes > 0 {
            items = items.min(usable(room.inodes));
        }
        let books =
            Books { ledger: Ledger::new(options.eviction, OVERHEAD), pending: Pending::default() };
        Ok(Self {
            dir,
            modes,
            checksum: options.checksum,
            eviction: options.eviction,
            capacity: (options.size / dirs).min(usable(room.bytes)),
            items,
            free_ratio: options.free_ratio,
            space,
            files,
            books: Mutex::new(books),
            areas: Mutex::default(),
            health: Mutex::new(Health::new(Instant::now())),
            running: Mutex::default(),
            state: AtomicU8::new(0),
            is_full: AtomicBool::new(room.is_short(options.free_ratio)),
            is_full_for_staging: AtomicBool::new(room.is_short(options.free_ratio / 2.0)),
            reads: Semaphore::new(MAX_READS),
            idle: Notify::new(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    pub fn add(&self, area: &Arc<Area>) {
        self.areas.lock().insert(area.id, Arc::clone(area));
        self.books().ledger.open(area.id, None, false);
    }

    pub fn remove(&self, area: AreaId) {
        self.areas.lock().remove(&area);
        self.books().ledger.close(area);
        self.files.close_area(area);
    }

    pub fn areas(&self) -> Vec<Arc<Area>> {
        self.areas.lock().values().map(Arc::clone).collect()
    }

    /// Whether there is no room for blocks, even after some were given up.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub fn is_full_for_staging(&self) -> bool {
        self.is_full_for_staging.load(Ordering::Relaxed)
    }

    /// Whether another block would be one too many; only asked if nothing can be given up.
    pub fn is_at_limit(&self, books: &Books, size: u32) -> bool {
        let bytes = books.ledger.bytes() + u64::from(size) + OVERHEAD;
        bytes > self.capacity || books.ledger.blocks() >= self.items
    }

    pub fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Normal,
            1 => State::Unstable,
            _ => State::Down,
        }
    }

    /// Does something on the disk, if its state allows, and judges the disk by the outcome.
    pub fn attempt<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !self.health.lock().begin() {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "the disk is not trusted"));
        }
        let running = self.running.lock().begin(Instant::now());
        let outcome = work();
        self.running.lock().end(running);
        self.note(outcome.as_ref().is_err_and(is_failure));
        self.health.lock().end();
        outcome
    }

    /// Something has failed, or not come back.
    pub fn note(&self, failed: bool) {
        if failed || self.state() != State::Normal {
            let change = self.health.lock().note(failed, Instant::now());
            self.enter(change);
        }
    }

    /// Counts what has not come back as failed, and the minutes of the disk's health. Never waits.
    pub fn tick(&self) {
        let overdue = self.running.lock().take_overdue(Instant::now());
        for _ in 0..overdue {
            self.note(true);
        }
        let change = self.health.lock().tick(Instant::now());
        self.enter(change);
    }

    /// Gives up blocks if there are too many or if the disk gets full. Blocks.
    pub fn make_room(&self) {
        if self.state() == State::Down {
            return;
        }
        let Ok(room) = self.attempt(|| self.space.room(&self.dir)) else { return };
        let missing = room.missing(self.free_ratio);
        self.evict(missing);
        let room = if missing == (0, 0) {
            room
        } else {
            match self.attempt(|| self.space.room(&self.dir)) {
                Ok(room) => room,
                Err(_) => return,
            }
        };
        self.is_full.store(room.is_short(self.free_ratio), Ordering::Relaxed);
        self.is_full_for_staging.store(room.is_short(self.free_ratio / 2.0), Ordering::Relaxed);
    }

    /// As [`Disk::make_room`], when the disk has just refused a file: at least some room.
    pub fn make_room_now(&self) {
        let some = self.books().ledger.bytes() / 20;
        self.evict((some.max(1), 0));
        self.make_room();
    }

    /// Whether blocks have to go for the limits' sake.
    pub fn is_over(&self) -> bool {
        let books = self.books();
        books.ledger.bytes() > self.capacity || books.ledger.blocks() > self.items
    }

    pub fn evict(&self, (missing_bytes, missing_blocks): (u64, u64)) {
        if self.eviction == Eviction::None {
            return;
        }
        let goal = {
            let books = self.books();
            let (bytes, blocks) = (books.ledger.bytes(), books.ledger.blocks());
            Goal {
                bytes: goal(bytes, self.capacity, missing_bytes, 95),
                blocks: goal(blocks, self.items, missing_blocks, 99),
            }
        };
        loop {
            let victims = self.books().ledger.evict(goal, self.capacity, now(), BATCH);
            self.discard(&victims);
            if victims.len() < BATCH || self.state() == State::Down {
                return;
            }
        }
    }

    /// Removes the files of blocks that are off the books.
    pub fn discard(&self, victims: &[(AreaId, BlockKey)]) {
        let areas = self.areas.lock().clone();
        for (area, block) in victims {
            let Some(area) = areas.get(area) else { continue };
            area.counters.evicted(1);
            // Whatever cannot be removed is found again by the next scan.
            let _ = self.attempt(|| fs::remove_file(area.cached_path(*block)));
            self.files.forget(area.id, *block);
        }
    }

    #[cfg(test)]
    pub fn give_up(&self) {
        let state = self.health.lock().give_up();
        self.enter(Some(state));
    }

    fn enter(&self, change: Option<State>) {
        let Some(state) = change else { return };
        let number = match state {
            State::Normal => 0,
            State::Unstable => 1,
            State::Down => 2,
        };
        self.state.store(number, Ordering::Relaxed);
        let dir = self.dir.display();
        match state {
            State::Normal => tracing::info!("cache directory {dir} works again"),
            State::Unstable => {
                tracing::warn!("cache directory {dir} fails too often: it is used with care");
            }
            State::Down => tracing::error!("cache directory {dir} is given up"),
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(now).unwrap_or(u32::MAX)
}

/// Whether an error speaks against the disk, and not only against one file or the moment.
fn is_failure(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let bad = [Errno::IO, Errno::NODEV, Errno::NXIO, Errno::UCLEAN, Errno::STALE];
    errno.is_some_and(|errno| bad.contains(&errno))
}

/// What to shrink to, so that it is below the limit and `missing` less; in percent of that, so
/// that it is not to be done again at once.
fn goal(held: u64, limit: u64, missing: u64, percent: u64) -> u64 {
    let part = |whole: u64| {
        let part = u128::from(whole) * u128::from(percent) / 100;
        u64::try_from(part).unwrap_or(whole)
    };
    let mut goal = held;
    if held > limit {
        goal = part(limit);
    }
    if missing > 0 {
        goal = goal.min(part(held.saturating_sub(missing)));
    }
    goal
}
