//! How much memory this process may take for data, and how many volumes that is enough for.

use std::fs;
use std::path::Path;

/// Of the limit of this process, in percent: the rest is for everything that is not data.
const SHARE: u64 = 50;
/// A process without a limit shares the machine.
const UNLIMITED_SHARE: u64 = 25;
/// Data needs so much to move at all.
const SMALLEST: u64 = 64 << 20;
/// A limit above this is none.
const ABSURD: u64 = 1 << 60;

/// What every mount can always hold of dirty data, whatever others do: a block of the usual size.
pub const MOUNT_FLOOR: usize = 4 << 20;
/// What every open volume can always hold of data on its way: a read over two blocks of the usual size.
pub const VOLUME_FLOOR: usize = 8 << 20;
/// What a mount takes beside its data.
const MOUNT_IDLE: u64 = 3 << 20;
/// No node has more pods than this with volumes of one driver, and the kernel knows as many mounts.
const MOST: u64 = 1000;

/// Bytes for data of all volumes, from the limit of this process.
pub fn budget() -> u64 {
    let bytes = match limit() {
        Some(limit) => limit / 100 * SHARE,
        None => machine().unwrap_or(SMALLEST) / 100 * UNLIMITED_SHARE,
    };
    bytes.max(SMALLEST)
}

/// Volumes that a node takes: half of the budget is enough for the floors of all.
pub fn most_volumes(budget: u64) -> u64 {
    (budget / 2 / (MOUNT_FLOOR as u64 + MOUNT_IDLE)).clamp(1, MOST)
}

/// What the control group of this process allows, of either version.
fn limit() -> Option<u64> {
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
    fn more_memory_takes_more_volumes() {
        assert!(budget() >= SMALLEST);
        assert_eq!(most_volumes(512 << 20), 36);
        assert_eq!(most_volumes(0), 1);
        assert_eq!(most_volumes(1 << 50), MOST);
    }
}
