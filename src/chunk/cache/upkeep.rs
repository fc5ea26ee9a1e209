//! The one task that looks after a cache: room on the disks, their health, expiry, scans.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::disk::{Disk, now};
use super::file::{self, BlockFile};
use super::health::State;
use super::layout;
use super::memory::Memory;
use super::options::CacheOptions;
use super::shelf::Shelf;

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
        let mut ticks = interval(if self.disks.is_empty() { self.pause() } else { TICK });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                now = ticks.tick() => {
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
                        scan: !self.scan_interval.is_zero()
                            && due(&mut scanned, self.scan_interval),
                    };
                    self.round(chores).await;
                }
            }
        }
    }

    /// Between two looks for expired blocks.
    fn pause(&self) -> Duration {
        if self.expire.is_zero() { MINUTE } else { self.expire.min(MINUTE).max(TICK) }
    }

    async fn round(&self, chores: Chores) {
        let since = (!self.expire.is_zero() && chores.sweep).then(|| {
            now().saturating_sub(u32::try_from(self.expire.as_secs()).unwrap_or(u32::MAX))
        });
        if let (Some(memory), Some(since)) = (&self.memory, since) {
            memory.expire(since);
        }
        for disk in &self.disks {
            let (disk, stop) = (Arc::clone(disk), Arc::clone(&self.stop));
            // It cannot fail; if it did, the next round would do it.
            let _ = spawn_blocking(move || chores.on(&disk, since, &stop)).await;
        }
    }
}

/// What is due.
#[derive(Debug, Clone, Copy)]
struct Chores {
    look: bool,
    sweep: bool,
    scan: bool,
}

impl Chores {
    fn on(self, disk: &Arc<Disk>, since: Option<u32>, stop: &AtomicBool) {
        disk.tick();
        if disk.state() == State::Unstable {
            probe(disk);
        }
        if self.look {
            disk.make_room();
        }
        if self.sweep {
            disk.files.close_removed();
        }
        for area in disk.areas() {
            let shelf = Shelf { disk: Arc::clone(disk), area };
            if let Some(since) = since {
                shelf.expire(since);
            }
            if self.scan {
                shelf.scan(stop);
            }
        }
    }
}

/// Tries whether a disk in doubt can write and read; [`Disk::attempt`] takes note.
fn probe(disk: &Disk) {
    const BODY: &[u8] = &[1, 2, 3];
    let Some(area) = disk.areas().into_iter().next() else { return };
    let dir = area.probe_dir();
    let path = dir.join(format!("{:016x}", rand::random::<u64>()));
    let trailer = layout::trailer(BODY, disk.checksum, 0);
    let written = disk.attempt(|| file::write(&path, &[BODY, &trailer], disk.modes, false));
    if written.is_ok() {
        let size = BODY.len() as u32;
        let _ = disk.attempt(|| BlockFile::open(&path, size, disk.checksum)?.read(&(0..size)));
        let _ = disk.attempt(|| fs::remove_file(&path));
    }
    // Nothing of it is left behind; another client may be probing too.
    let _ = fs::remove_dir(&dir);
}
