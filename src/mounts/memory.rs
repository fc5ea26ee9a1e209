//! What this process may hold in memory: how much of it is for data, what lies beside that, and how many
//! volumes fit.
//!
//! Everything that grows with what tenants do has its own bound, taken from the limit of the process. What
//! is left is the budget for data. The sizes of what does not grow are measured, see docs/kubernetes.md.

use std::fs;
use std::path::Path;

/// A process without a limit shares the machine: it behaves as if it had this part of it, in percent.
const UNLIMITED_SHARE: u64 = 40;
/// Data needs so much to move at all.
const SMALLEST: u64 = 32 << 20;
/// A limit above this is none.
const ABSURD: u64 = 1 << 60;

/// What every mount can always hold of dirty data, whatever others do.
pub const MOUNT_FLOOR: usize = 1 << 20;
/// What every open file system can always hold of data on its way.
pub const VOLUME_FLOOR: usize = 2 << 20;
/// What every mount can always have open.
pub const TABLES_FLOOR: usize = 128 << 10;
/// The program itself, its threads and connections, and what its allocator has not given back.
const PROGRAM: u64 = 40 << 20;
/// What a mount takes that is published and in use: its session, its metrics, the buffer it receives into,
/// and a file system of its own.
const MOUNT: u64 = 7 << 18;
/// What is known of a block in the cache.
const BLOCK: u64 = 64;
/// No node has more pods than this with volumes of one driver, and the kernel knows as many mounts.
const MOST: u64 = 1000;

/// How the memory of this process is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// For data: blocks being written, read, read ahead and kept.
    pub budget: u64,
    /// For data beyond the budget that a mount or file system needs to move on when others hold all of it.
    pub excess: u64,
    /// For requests of the kernel in flight, of all mounts; twice as much at worst, and half of it kept.
    pub requests: u64,
    /// For open files and directories, and for what is asked of virtual files.
    pub tables: u64,
    /// For memory of blocks that is kept to be used again.
    pub pool: u64,
    /// For the names of blocks that are cached on disk.
    pub index: u64,
    /// Volumes that fit.
    pub volumes: u64,
}

impl Sizes {
    /// From the limit of this process. Both can be said.
    pub fn new(budget: Option<u64>, volumes: Option<u64>) -> Self {
        let limit = limit().or_else(|| Some(machine()? / 100 * UNLIMITED_SHARE));
        Self::of(limit.unwrap_or(SMALLEST), budget, volumes)
    }

    fn of(limit: u64, budget: Option<u64>, volumes: Option<u64>) -> Self {
        // A budget that is said is half of what the process is like, whatever it may have.
        let size = budget.map_or(limit, |budget| limit.min(2 * budget));
        let mut sizes = Self {
            budget: 0,
            excess: 0,
            requests: (size / 32).clamp(4 << 20, 256 << 20),
            tables: (size / 16).clamp(8 << 20, 1 << 30),
            pool: (size / 32).clamp(4 << 20, 32 << 20),
            index: (size / 64).max(4 << 20),
            volumes: volumes.unwrap_or(size / 4 / MOUNT).clamp(1, MOST),
        };
        let left = limit.saturating_sub(sizes.beside()).max(SMALLEST);
        sizes.budget = budget.unwrap_or(left / 8 * 7).max(SMALLEST);
        sizes.excess = (sizes.budget / 8).max(8 << 20);
        sizes
    }

    /// Blocks on disk that there is memory to know of.
    pub fn blocks(&self) -> u64 {
        self.index / BLOCK
    }

    /// What lies beside data at most.
    pub fn beside(&self) -> u64 {
        PROGRAM
            + self.requests / 2 * 5
            + self.tables
            + self.pool
            + self.index
            + self.volumes * MOUNT
    }

    /// What is needed for all of it.
    pub fn total(&self) -> u64 {
        self.budget + self.excess + self.beside()
    }
}

/// What the control group of this process allows, of either version.
pub fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut files = vec![
        "/sys/fs/cgroup/memory.max".to_owned(),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned(),
    ];
    files.extend(own_files(&groups));
    // Every group above counts as well, so the tightest does.
    files.iter().filter_map(|file| read_limit(Path::new(file))).min()
}

/// Where the limit of these groups would be, if this process sees the whole hierarchy.
fn own_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            files.push(format!("/sys/fs/cgroup{path}/memory.max"));
        } else if controllers.split(',').any(|name| name == "memory") {
            files.push(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"));
        }
    }
    files
}

fn read_limit(file: &Path) -> Option<u64> {
    // "max" is not a number, and neither a limit.
    fs::read_to_string(file).ok()?.trim().parse().ok().filter(|limit| *limit < ABSURD)
}

fn machine() -> Option<u64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let total = table.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_found_in_both_versions_of_control_groups() {
        assert_eq!(own_files("0::/kubepods/a\n"), ["/sys/fs/cgroup/kubepods/a/memory.max"]);
        let old = "5:memory:/docker/b\n4:cpu,cpuacct:/docker/b\n";
        assert_eq!(own_files(old), ["/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes"]);
    }

    #[test]
    fn a_limit_is_a_number_that_means_something() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let file = dir.path().join("limit");
            fs::write(&file, text).unwrap();
            read_limit(&file)
        };
        assert_eq!(read("1073741824\n"), Some(1 << 30));
        assert_eq!(read("max\n"), None);
        assert_eq!(read("9223372036854771712\n"), None);
        assert_eq!(read_limit(&dir.path().join("none")), None);
    }

    #[test]
    fn all_parts_together_are_within_the_limit() {
        for limit in [256_u64 << 20, 512 << 20, 1 << 30, 4 << 30, 64 << 30] {
            let sizes = Sizes::of(limit, None, None);
            assert!(sizes.total() <= limit + (4 << 20), "{limit}: {sizes:?}");
            assert!(sizes.budget >= limit / 5, "{limit}: {sizes:?}");
        }
    }

    #[test]
    fn more_memory_takes_more_volumes_and_what_is_said_counts() {
        let volumes = |limit: u64| Sizes::of(limit, None, None).volumes;
        assert_eq!((volumes(256 << 20), volumes(1 << 30), volumes(1 << 40)), (36, 146, MOST));
        let said = Sizes::of(1 << 30, Some(128 << 20), Some(7));
        assert_eq!((said.budget, said.volumes), (128 << 20, 7));
        // Every mount has its floors.
        for limit in [256_u64 << 20, 1 << 30] {
            let sizes = Sizes::of(limit, None, None);
            assert!(sizes.volumes * MOUNT_FLOOR as u64 <= sizes.budget / 2, "{sizes:?}");
            assert!(sizes.volumes * TABLES_FLOOR as u64 <= sizes.tables / 2, "{sizes:?}");
        }
    }

    #[test]
    fn a_limit_that_is_too_small_still_lets_data_move() {
        let sizes = Sizes::of(0, None, None);
        assert_eq!((sizes.budget, sizes.volumes), (SMALLEST, 1));
    }
}
