//! Maintenance of the cache: one task for free space, disk health, expiry and scans.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::block_file::{self, BlockFile};
use super::disk::{Disk, now};
use super::memory::Memory;
use super::options::CacheOptions;
use crate::buffer_pool;
use crate::chunk::cache::block_file::format;
use crate::chunk::cache::disk::health::HealthState;
use crate::chunk::cache::disk::volume_disk::VolumeDisk;

/// Intervals: between two ticks, which also probe an unstable disk, and between two checks of free
/// space.
const TICK: Duration = Duration::from_millis(500);
const SPACE_CHECK: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// The maintenance task of a cache.
pub struct Maintenance {
    pub disks: Vec<Arc<Disk>>,
    pub memory: Option<Arc<Memory>>,
    pub scan_interval: Duration,
    pub expire: Duration,
    /// Ends a running scan.
    pub stop: Arc<AtomicBool>,
}

impl Maintenance {
    pub fn new(disks: Vec<Arc<Disk>>, memory: Option<Arc<Memory>>, options: &CacheOptions) -> Self {
        let CacheOptions { scan_interval, expire, .. } = *options;
        Self { disks, memory, scan_interval, expire, stop: Arc::default() }
    }

    /// Runs until `end` is cancelled.
    pub async fn run(self, end: CancellationToken) {
        let start = Instant::now();
        let (mut space_checked, mut swept, mut scanned) = (start, start, start);
        let mut running: Vec<RunningTasks> =
            self.disks.iter().map(|_| RunningTasks::default()).collect();
        let mut ticks = interval(if self.disks.is_empty() { self.sweep_interval() } else { TICK });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = tokio::select! {
                () = end.cancelled() => break,
                now = ticks.tick() => now,
            };
            buffer_pool::release_idle();
            let is_due = |last: &mut Instant, every: Duration| {
                let due = now.duration_since(*last) >= every;
                if due {
                    *last = now;
                }
                due
            };
            let due = DueTasks {
                check_space: is_due(&mut space_checked, SPACE_CHECK),
                sweep: is_due(&mut swept, self.sweep_interval()),
                since: self.expired_before(),
            };
            if let (Some(memory), Some(since)) = (&self.memory, due.since)
                && due.sweep
            {
                memory.expire(since);
            }
            let scan = !self.scan_interval.is_zero() && is_due(&mut scanned, self.scan_interval);
            for (disk, running) in self.disks.iter().zip(&mut running) {
                self.start_due(disk, running, due, scan);
            }
        }
        for RunningTasks { main, scan } in running {
            for task in [main, scan].into_iter().flatten() {
                let _ = task.await;
            }
        }
    }

    /// Starts the tasks that are due on a disk. A disk that is still busy with the last ones,
    /// perhaps because it hangs, delays no other disk.
    fn start_due(&self, disk: &Arc<Disk>, running: &mut RunningTasks, due: DueTasks, scan: bool) {
        disk.tick();
        if is_idle(running.main.as_ref()) {
            let disk = Arc::clone(disk);
            running.main = Some(spawn_blocking(move || due.run_on(&disk)));
        }
        if scan && is_idle(running.scan.as_ref()) {
            let (disk, stop) = (Arc::clone(disk), Arc::clone(&self.stop));
            running.scan = Some(spawn_blocking(move || {
                for dir in disk.volume_dirs() {
                    VolumeDisk { disk: Arc::clone(&disk), dir }.scan(&stop);
                }
            }));
        }
    }

    /// Returns the time such that blocks not used since then are expired.
    fn expired_before(&self) -> Option<u32> {
        let age = u32::try_from(self.expire.as_secs()).unwrap_or(u32::MAX);
        (!self.expire.is_zero()).then(|| now().saturating_sub(age))
    }

    /// Returns the time between two sweeps for expired blocks.
    fn sweep_interval(&self) -> Duration {
        if self.expire.is_zero() { MINUTE } else { self.expire.min(MINUTE).max(TICK) }
    }
}

/// The tasks that run on a disk.
#[derive(Default)]
struct RunningTasks {
    main: Option<JoinHandle<()>>,
    scan: Option<JoinHandle<()>>,
}

/// The tasks that are due.
#[derive(Debug, Clone, Copy)]
struct DueTasks {
    check_space: bool,
    /// Closes files that others have removed, and drops expired blocks.
    sweep: bool,
    since: Option<u32>,
}

impl DueTasks {
    fn run_on(self, disk: &Arc<Disk>) {
        if disk.health_state() == HealthState::Unstable {
            probe(disk);
        }
        if self.check_space {
            disk.make_room();
        }
        if !self.sweep {
            return;
        }
        disk.files.close_removed();
        if let Some(since) = self.since {
            for dir in disk.volume_dirs() {
                VolumeDisk { disk: Arc::clone(disk), dir }.expire(since);
            }
        }
    }
}

fn is_idle(task: Option<&JoinHandle<()>>) -> bool {
    task.is_none_or(JoinHandle::is_finished)
}

/// Checks whether an unstable disk can write and read; [`Disk::attempt`] records the outcome.
fn probe(disk: &Disk) {
    const BODY: &[u8] = &[1, 2, 3];
    const SIZE: u32 = 3;
    let Some(dir) = disk.volume_dirs().into_iter().next() else { return };
    let dir = dir.probe_dir();
    let path = dir.join(format!("{:016x}", rand::random::<u64>()));
    let trailer = format::trailer(BODY, disk.checksum, 0);
    let written = disk.attempt(|| block_file::write(&path, &[BODY, &trailer], disk.modes));
    if written.is_ok() {
        let _ = disk.attempt(|| BlockFile::open(&path, SIZE, disk.checksum)?.read(&(0..SIZE)));
        let _ = disk.attempt(|| fs::remove_file(&path));
    }
    // Leaves nothing behind. Fails if another client is probing too.
    let _ = fs::remove_dir(&dir);
}
