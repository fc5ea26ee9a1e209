//! How the memory of this process is divided, and how many volumes fit into it.
//!
//! Everything that grows with the activity of tenants has its own bound, derived from the memory
//! limit of the process. The rest is the budget for data. The constant sizes are measured, see
//! docs/kubernetes.md.

use std::fs;
use std::path::Path;

/// The percentage of the machine's memory that a process without a limit assumes as its limit.
const UNLIMITED_PERCENT: u64 = 40;
/// The smallest budget with which data can be moved.
const MIN_BUDGET: u64 = 32 << 20;
/// A limit above this means none.
const NO_LIMIT: u64 = 1 << 60;

/// Dirty data that every mount can hold, whatever other mounts do.
pub const MOUNT_FLOOR: usize = 1 << 20;
/// Data in transfer that every open file system can hold, whatever others do.
pub const VOLUME_FLOOR: usize = 2 << 20;
/// Memory for open files that every mount can have, whatever other mounts do.
pub const TABLES_FLOOR: usize = 128 << 10;
/// The program itself, its threads and connections, and freed memory that its allocator keeps.
const PROGRAM_SIZE: u64 = 40 << 20;
/// A mount in use: its metrics, its receive buffer, and an open file system of its own.
const MOUNT_SIZE: u64 = 7 << 18;
/// The index entry of a cached block.
const INDEX_ENTRY_SIZE: u64 = 64;
/// No node has more pods with volumes of one driver, and the kernel has a limit on mounts too.
const MAX_VOLUMES: u64 = 1000;

/// How the memory of this process is divided, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySizes {
    /// Data: blocks that are written, read, read ahead and cached.
    pub budget: u64,
    /// Data beyond the budget, for a mount or file system to make progress when others hold all of
    /// it.
    pub excess: u64,
    /// Kernel requests of all mounts; at worst twice as much, and half of it stays allocated.
    pub requests: u64,
    /// Open files and directories, and requests to virtual files.
    pub tables: u64,
    /// Block buffers that are kept for reuse.
    pub pool: u64,
    /// The index of blocks that are cached on disk.
    pub index: u64,
    /// The number of volumes that fit.
    pub volumes: u64,
}

impl MemorySizes {
    /// Divides the memory limit of this process. The budget and the number of volumes can be given.
    pub fn new(budget: Option<u64>, volumes: Option<u64>) -> Self {
        let limit = limit().or_else(|| Some(machine_memory()? / 100 * UNLIMITED_PERCENT));
        Self::from_limit(limit.unwrap_or(MIN_BUDGET), budget, volumes)
    }

    fn from_limit(limit: u64, budget: Option<u64>, volumes: Option<u64>) -> Self {
        // A given budget counts as half of the memory, even if the limit is higher.
        let size = budget.map_or(limit, |budget| limit.min(2 * budget));
        let mut sizes = Self {
            budget: 0,
            excess: 0,
            requests: (size / 32).clamp(4 << 20, 256 << 20),
            tables: (size / 16).clamp(8 << 20, 1 << 30),
            pool: (size / 32).clamp(4 << 20, 32 << 20),
            index: (size / 64).max(4 << 20),
            volumes: volumes.unwrap_or(size / 4 / MOUNT_SIZE).clamp(1, MAX_VOLUMES),
        };
        let left = limit.saturating_sub(sizes.overhead()).max(MIN_BUDGET);
        sizes.budget = budget.unwrap_or(left / 8 * 7).max(MIN_BUDGET);
        sizes.excess = (sizes.budget / 8).max(8 << 20);
        sizes
    }

    /// Returns how many blocks on disk the index can hold.
    pub fn blocks(&self) -> u64 {
        self.index / INDEX_ENTRY_SIZE
    }

    /// Returns the maximum of everything but data.
    pub fn overhead(&self) -> u64 {
        PROGRAM_SIZE
            + self.requests / 2 * 5
            + self.tables
            + self.pool
            + self.index
            + self.volumes * MOUNT_SIZE
    }

    /// Returns the maximum of everything.
    pub fn total(&self) -> u64 {
        self.budget + self.excess + self.overhead()
    }
}

/// Returns the memory limit of this process's cgroup, version 1 or 2.
pub fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut files = vec![
        "/sys/fs/cgroup/memory.max".to_owned(),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned(),
    ];
    files.extend(limit_files(&groups));
    // The limits of all ancestors apply, so the lowest counts.
    files.iter().filter_map(|file| read_limit(Path::new(file))).min()
}

/// Returns the limit files of these cgroups, for a process that sees the whole hierarchy.
fn limit_files(groups: &str) -> Vec<String> {
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
    // Without a limit, the file has "max".
    fs::read_to_string(file).ok()?.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
}

fn machine_memory() -> Option<u64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let total = table.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_found_in_both_cgroup_versions() {
        assert_eq!(limit_files("0::/kubepods/a\n"), ["/sys/fs/cgroup/kubepods/a/memory.max"]);
        let old = "5:memory:/docker/b\n4:cpu,cpuacct:/docker/b\n";
        assert_eq!(limit_files(old), ["/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes"]);
    }

    #[test]
    fn a_limit_is_a_plausible_number() {
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
            let sizes = MemorySizes::from_limit(limit, None, None);
            assert!(sizes.total() <= limit + (4 << 20), "{limit}: {sizes:?}");
            assert!(sizes.budget >= limit / 5, "{limit}: {sizes:?}");
        }
    }

    #[test]
    fn more_memory_takes_more_volumes_and_given_values_count() {
        let volumes = |limit: u64| MemorySizes::from_limit(limit, None, None).volumes;
        assert_eq!(
            (volumes(256 << 20), volumes(1 << 30), volumes(1 << 40)),
            (36, 146, MAX_VOLUMES)
        );
        let given = MemorySizes::from_limit(1 << 30, Some(128 << 20), Some(7));
        assert_eq!((given.budget, given.volumes), (128 << 20, 7));
        // The minimums of all mounts fit.
        for limit in [256_u64 << 20, 1 << 30] {
            let sizes = MemorySizes::from_limit(limit, None, None);
            assert!(sizes.volumes * MOUNT_FLOOR as u64 <= sizes.budget / 2, "{sizes:?}");
            assert!(sizes.volumes * TABLES_FLOOR as u64 <= sizes.tables / 2, "{sizes:?}");
        }
    }

    #[test]
    fn too_small_a_limit_still_lets_data_move() {
        let sizes = MemorySizes::from_limit(0, None, None);
        assert_eq!((sizes.budget, sizes.volumes), (MIN_BUDGET, 1));
    }
}
