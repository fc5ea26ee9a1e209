//! The memory of the driver under load: its limit is enough whatever pods do.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::csi::Node;
use crate::support::cgroup::MemoryGroup;
use crate::support::timeout::{MOUNTED, within};

const VOLUMES: usize = 8;
/// Programs of each kind in each volume.
const PROGRAMS: usize = 4;
const FILE: usize = 12 << 20;
/// The largest request of the kernel.
const REQUEST: usize = 1 << 20;
/// Bypasses the kernel's page cache.
const O_DIRECT: i32 = 0o40000;

#[test]
fn a_quarter_gibibyte_serves_sixty_four_programs_on_eight_volumes() {
    survives(256 << 20, Duration::from_secs(8));
}

#[test]
fn half_a_gibibyte_serves_sixty_four_programs_on_eight_volumes() {
    survives(512 << 20, Duration::from_secs(4));
}

#[test]
fn a_gibibyte_serves_sixty_four_programs_on_eight_volumes() {
    survives(1 << 30, Duration::from_secs(4));
}

/// Runs the driver with this memory limit while programs write and read. They must read what was
/// written, and the driver must not be killed. `JFS_LOAD_SECONDS` sets a longer time, for
/// measurements.
fn survives(limit: u64, time: Duration) {
    let seconds = std::env::var("JFS_LOAD_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = seconds.map_or(time, Duration::from_secs);
    within(MOUNTED + time, move || {
        let mut node = Node::start_within(MemoryGroup::new(limit));
        let volumes: Vec<_> = (0..VOLUMES)
            .map(|i| node.publication(&format!("pvc-{i}"), &format!("pod-{i}")))
            .collect();
        for volume in &volumes {
            node.publish(volume).unwrap();
            write(&volume.target.join("read"), 7);
        }
        let done = Done::default();
        let mut programs = Vec::new();
        for volume in &volumes {
            for number in 0..PROGRAMS {
                let (dir, shared) = (volume.target.clone(), done.clone());
                programs.push(thread::spawn(move || write_repeatedly(&dir, number, &shared)));
                let (dir, shared) = (volume.target.clone(), done.clone());
                programs.push(thread::spawn(move || read_repeatedly(&dir, &shared)));
            }
        }
        let started = Instant::now();
        let mut peak = 0;
        while started.elapsed() < time && node.is_ready() {
            peak = peak.max(anonymous(node.pid()));
            thread::sleep(Duration::from_millis(50));
        }
        done.over.store(true, Ordering::Relaxed);
        let kills = node.group().unwrap().kills();
        assert_eq!(kills, 0, "the driver was killed in {} MiB:\n{}", limit >> 20, node.log());
        for program in programs {
            program.join().unwrap();
        }
        let moved = done.bytes.load(Ordering::Relaxed) >> 20;
        eprintln!("limit {} MiB: at most {} MiB held, {moved} MiB moved", limit >> 20, peak >> 20);
        assert!(moved > 0 && node.is_ready(), "{}", node.log());
        assert_eq!(node.group().unwrap().kills(), 0);
        assert!(node.stop(), "{}", node.log());
    });
}

/// What the programs of a test share.
#[derive(Clone, Default)]
struct Done {
    /// Tells the programs to end.
    over: Arc<AtomicBool>,
    /// Bytes written and read.
    bytes: Arc<AtomicU64>,
}

fn write_repeatedly(dir: &Path, number: usize, done: &Done) {
    let Done { over, bytes } = done;
    let path = dir.join(format!("write-{number}"));
    let mut byte = 0_u8;
    while !over.load(Ordering::Relaxed) {
        byte = byte.wrapping_add(1);
        write(&path, byte);
        bytes.fetch_add(FILE as u64, Ordering::Relaxed);
    }
    let content = fs::read(&path).unwrap();
    assert!(content.len() == FILE && content.iter().all(|found| *found == byte));
}

fn read_repeatedly(dir: &Path, done: &Done) {
    let Done { over, bytes } = done;
    let mut buffer = vec![0; REQUEST];
    while !over.load(Ordering::Relaxed) {
        let path = dir.join("read");
        let mut file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap();
        loop {
            let count = file.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            assert!(buffer[..count].iter().all(|byte| *byte == 7));
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

fn write(path: &Path, byte: u8) {
    let mut file = File::create(path).unwrap();
    for _ in 0..FILE / REQUEST {
        file.write_all(&vec![byte; REQUEST]).unwrap();
    }
}

/// Returns the anonymous memory of a process in bytes.
pub fn anonymous(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}
