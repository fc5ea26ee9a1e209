//! A control group with a limit of memory, of either version, for a program under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed when dropped; whoever was in it must have ended.
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
    /// If this machine lets nobody make one: what is tested in it would pass for the wrong reason.
    pub fn new(limit: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (root, version) = root();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("jfs-test-{}-{number}", std::process::id()));
        let made = fs::create_dir(&dir);
        assert!(made.is_ok(), "no control group can be made at {}: {made:?}", dir.display());
        let group = Self { dir, version };
        let file = if version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
        let limited = fs::write(group.dir.join(file), limit.to_string());
        assert!(limited.is_ok(), "the memory of a control group cannot be limited: {limited:?}");
        group
    }

    /// A program that will be in it from its first moment.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh"])
            .arg(self.dir.join("cgroup.procs"))
            .arg(program);
        command
    }

    /// How often the kernel has killed somebody in it for want of memory.
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
        "control groups of memory are not mounted at /sys/fs/cgroup: this test needs them, and root"
    );
    // It may be on already, and then others use it.
    let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
    (root, Version::Two)
}
