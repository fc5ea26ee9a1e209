//! The one task that looks after a cache: room on the disks, their health, expiry, scans.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::disk::{Disk, now};
use super::file::{self, BlockFile};
use super::health::State;
use super::layout;
use super::memory::Memory;
use super::options::CacheOptions;
use super::shelf::Shelf;
use crate::page;

/// Between two looks at the room that a disk has left, and two probes of one in doubt.
const TICK: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// What is looked after.
pub struct Upkeep {
    pub disks: Vec<Arc<Disk>>,
    pub memory: Option<Arc<Memory>>,
    pub scan_interval: Duration,
    pub expire: Duration,
    /// Ends a scan that is running.
    pub stop: Arc<AtomicBool>,
}

impl Upkeep {
    pub fn new(disks: Vec<Arc<Disk>>, memory: Option<Arc<Memory>>, options: &CacheOptions) -> Self {
        let CacheOptions { scan_interval, expire, .. } = *options;
        Self { disks, memory, scan_interval, expire, stop: Arc::default() }
    }

    /// Runs until told to end.
    pub async fn run(self, end: CancellationToken) {
        let start = Instant::now();
        let (mut looked, mut swept, mut scanned) = (start, start, start);
        let mut work: Vec<Work> = self.disks.iter().map(|_| Work::default()).collect();
        let mut ticks = interval(if self.disks.is_empty() { self.pause() } else { TICK });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = tokio::select! {
                () = end.cancelled() => break,
                now = ticks.tick() => now,
            };
            page::let_go();
            let due = |last: &mut Instant, every: Duration| {
                let due = now.duration_since(*last) >= every;
                if due {
                    *last = now;
                }
                due
            };
            let chores = Chores {
                look: due(&mut looked, LOOK),
                sweep: due(&mut swept, self.pause()),
                since: self.expired(),
            };
            if let (Some(memory), Some(since)) = (&self.memory, chores.since)
                && chores.sweep
            {
                memory.expire(since);
            }
            let scan = !self.scan_interval.is_zero() && due(&mut scanned, self.scan_interval);
            for (disk, work) in self.disks.iter().zip(&mut work) {
                self.begin(disk, work, chores, scan);
            }
        }
        for Work { chores, scan } in work {
            for task in [chores, scan].into_iter().flatten() {
                let _ = task.await;
            }
        }
    }

    /// Starts what is due on a disk. A disk that is still busy with the last time, perhaps since it
    /// hangs, holds up nobody else.
    fn begin(&self, disk: &Arc<Disk>, work: &mut Work, chores: Chores, scan: bool) {
        disk.tick();
        if is_idle(work.chores.as_ref()) {
            let disk = Arc::clone(disk);
            work.chores = Some(spawn_blocking(move || chores.on(&disk)));
        }
        if scan && is_idle(work.scan.as_ref()) {
            let (disk, stop) = (Arc::clone(disk), Arc::clone(&self.stop));
            work.scan = Some(spawn_blocking(move || {
                for area in disk.areas() {
                    Shelf { disk: Arc::clone(&disk), area }.scan(&stop);
                }
            }));
        }
    }

    /// Blocks that were not used since then are expired.
    fn expired(&self) -> Option<u32> {
        let age = u32::try_from(self.expire.as_secs()).unwrap_or(u32::MAX);
        (!self.expire.is_zero()).then(|| now().saturating_sub(age))
    }

    /// Between two looks for expired blocks.
    fn pause(&self) -> Duration {
        if self.expire.is_zero() { MINUTE } else { self.expire.min(MINUTE).max(TICK) }
    }
}

/// What runs on a disk.
#[derive(Default)]
struct Work {
    chores: Option<JoinHandle<()>>,
    scan: Option<JoinHandle<()>>,
}

/// What is due.
#[derive(Debug, Clone, Copy)]
struct Chores {
    look: bool,
    /// Closing what others have removed, and dropping what was not used since.
    sweep: bool,
    since: Option<u32>,
}

impl Chores {
    fn on(self, disk: &Arc<Disk>) {
        if disk.state() == State::Unstable {
            probe(disk);
        }
        if self.look {
            disk.make_room();
        }
        if !self.sweep {
            return;
        }
        disk.files.close_removed();
        if let Some(since) = self.since {
            for area in disk.areas() {
                Shelf { disk: Arc::clone(disk), area }.expire(since);
            }
        }
    }
}

fn is_idle(task: Option<&JoinHandle<()>>) -> bool {
    task.is_none_or(JoinHandle::is_finished)
}

/// Tries whether a disk in doubt can write and read; [`Disk::attempt`] takes note.
fn probe(disk: &Disk) {
    const BODY: &[u8] = &[1, 2, 3];
    const SIZE: u32 = 3;
    let Some(area) = disk.areas().into_iter().next() else { return };
    let dir = area.probe_dir();
    let path = dir.join(format!("{:016x}", rand::random::<u64>()));
    let trailer = layout::trailer(BODY, disk.checksum, 0);
    let written = disk.attempt(|| file::write(&path, &[BODY, &trailer], disk.modes, false));
    if written.is_ok() {
        let _ = disk.attempt(|| BlockFile::open(&path, SIZE, disk.checksum)?.read(&(0..SIZE)));
        let _ = disk.attempt(|| fs::remove_file(&path));
    }
    // Nothing of it is left behind; another client may be probing too.
    let _ = fs::remove_dir(&dir);
}
