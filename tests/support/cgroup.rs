//! A control group, v1 or v2, with a memory limit for a program under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed when dropped; its processes must have exited by then.
pub struct MemoryGroup {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// # Panics
    /// If none can be created on this machine: the test would pass for the wrong reason.
    pub fn new(limit: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (root, version) = root();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("jfs-test-{}-{number}", std::process::id()));
        let made = fs::create_dir(&dir);
        assert!(made.is_ok(), "cannot create a control group at {}: {made:?}", dir.display());
        let group = Self { dir, version };
        let file = if version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
        let limited = fs::write(group.dir.join(file), limit.to_string());
        assert!(limited.is_ok(), "cannot limit the memory of a control group: {limited:?}");
        group
    }

    /// Returns a command that runs in the group from the start.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh"])
            .arg(self.dir.join("cgroup.procs"))
            .arg(program);
        command
    }

    /// Returns how many processes of the group the OOM killer has killed.
    pub fn kills(&self) -> u64 {
        let file =
            if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.dir.join(file)).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("the kernel counts kills").trim().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

fn root() -> (PathBuf, Version) {
    let old = Path::new("/sys/fs/cgroup/memory");
    if old.join("memory.limit_in_bytes").exists() {
        return (old.to_owned(), Version::One);
    }
    let root = PathBuf::from("/sys/fs/cgroup");
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    assert!(
        controllers.split_whitespace().any(|name| name == "memory"),
        "this test needs memory control groups at /sys/fs/cgroup, and root"
    );
    // Fails if it is enabled already and in use.
    let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
    (root, Version::Two)
}
