//! The memory of the driver under load: what it is limited to is enough, whatever pods do.

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
/// Of each kind, in each volume.
const PROGRAMS: usize = 4;
const FILE: usize = 12 << 20;
/// As large as the kernel makes a request.
const PIECE: usize = 1 << 20;
/// Reads go to the driver, not to the kernel's cache.
const O_DIRECT: i32 = 0o40000;

#[test]
fn sixty_four_programs_on_eight_volumes_are_served_in_256_mebibytes() {
    survives(256 << 20, Duration::from_secs(8));
}

#[test]
fn sixty_four_programs_on_eight_volumes_are_served_in_512_mebibytes() {
    survives(512 << 20, Duration::from_secs(4));
}

#[test]
fn sixty_four_programs_on_eight_volumes_are_served_in_a_gibibyte() {
    survives(1 << 30, Duration::from_secs(4));
}

/// Runs the driver with this limit of memory while programs write and read for some time; what they read
/// is what was written, and nobody is killed. `JFS_LOAD_SECONDS` makes it longer, to measure.
fn survives(limit: u64, time: Duration) {
    let said = std::env::var("JFS_LOAD_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = said.map_or(time, Duration::from_secs);
    within(MOUNTED + time, move || {
        let mut node = Node::start_within(MemoryGroup::new(limit));
        let volumes: Vec<_> = (0..VOLUMES)
            .map(|i| node.publication(&format!("pvc-{i}"), &format!("pod-{i}")))
            .collect();
        for volume in &volumes {
            node.publish(volume).unwrap();
            write(&volume.target.join("read"), 7);
        }
        let (over, bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut programs = Vec::new();
        for volume in &volumes {
            for number in 0..PROGRAMS {
                let (dir, done) = (volume.target.clone(), (Arc::clone(&over), Arc::clone(&bytes)));
                programs.push(thread::spawn(move || writes(&dir, number, &done)));
                let (dir, done) = (volume.target.clone(), (Arc::clone(&over), Arc::clone(&bytes)));
                programs.push(thread::spawn(move || reads(&dir, &done)));
            }
        }
        let begun = Instant::now();
        let mut most = 0;
        while begun.elapsed() < time && node.is_ready() {
            most = most.max(anonymous(node.pid()));
            thread::sleep(Duration::from_millis(50));
        }
        over.store(true, Ordering::Relaxed);
        let kills = node.group().unwrap().kills();
        assert_eq!(kills, 0, "the driver was killed in {} MiB:\n{}", limit >> 20, node.log());
        for program in programs {
            program.join().unwrap();
        }
        let moved = bytes.load(Ordering::Relaxed) >> 20;
        eprintln!("limit {} MiB: at most {} MiB held, {moved} MiB moved", limit >> 20, most >> 20);
        assert!(moved > 0 && node.is_ready(), "{}", node.log());
        assert_eq!(node.group().unwrap().kills(), 0);
        assert!(node.stop(), "{}", node.log());
    });
}

type Done = (Arc<AtomicBool>, Arc<AtomicU64>);

fn writes(dir: &Path, number: usize, (over, bytes): &Done) {
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

fn reads(dir: &Path, (over, bytes): &Done) {
    let mut piece = vec![0; PIECE];
    while !over.load(Ordering::Relaxed) {
        let path = dir.join("read");
        let mut file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap();
        loop {
            let count = file.read(&mut piece).unwrap();
            if count == 0 {
                break;
            }
            assert!(piece[..count].iter().all(|byte| *byte == 7));
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

fn write(path: &Path, byte: u8) {
    let mut file = File::create(path).unwrap();
    for _ in 0..FILE / PIECE {
        file.write_all(&vec![byte; PIECE]).unwrap();
    }
}

/// What a process holds that is no file, in bytes.
pub fn anonymous(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}
