//! A temporary folder with everything that one test mounts; all of it is removed at the end.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::support::command::{Finished, poll, run, wait};
use super::support::mount::is_mounted;
use super::support::redis::RedisServer;
use super::support::timeout::{has_limit, on_timeout};

/// Time limit of one command, on a busy machine.
pub const LIMIT: Duration = Duration::from_mins(1);

pub struct CliFixture {
    folder: TempDir,
}

impl CliFixture {
    #[track_caller]
    pub fn new() -> Self {
        assert!(has_limit(), "a test that mounts must run inside timeout::within");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        on_timeout(move || clear(&path));
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn point(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns a command without environment variables of this machine that would affect it.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-mount"));
        self.prepare(&mut command);
        command.args(words);
        command
    }

    pub fn prepare(&self, command: &mut Command) {
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.env("JFS_DATA_DIR", self.path("data"));
        for name in ["META_PASSWORD", "NOTIFY_SOCKET", "JFS_LOG", "JFS_FOREGROUND"] {
            command.env_remove(name);
        }
    }

    #[track_caller]
    pub fn run(&self, words: &[&str]) -> Finished {
        run(self.command(words), LIMIT)
    }

    /// Runs `mount` in the background.
    #[track_caller]
    pub fn mount(&self, words: &[&str]) -> Finished {
        let common =
            ["mount", "-d", "--log", "log", "--cache-dir", "cache", "--free-space-ratio", "0.01"];
        self.run(&[&common, words].concat())
    }

    /// Runs `mount` in the foreground, and returns once the volume is mounted.
    #[track_caller]
    pub fn serve(&self, words: &[&str]) -> Child {
        let mut command = self.command(&["mount", "--cache-dir", "cache"]);
        command.args(words);
        self.spawn(command)
    }

    #[track_caller]
    pub fn spawn(&self, mut command: Command) -> Child {
        let log = fs::File::create(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.process_group(0).spawn().unwrap();
        let up = poll(LIMIT, || is_mounted(&self.point()) || child.try_wait().unwrap().is_some());
        assert!(up && is_mounted(&self.point()), "no mount:\n{}", self.log());
        child
    }

    /// Formats a volume in Redis, with its data in this folder.
    #[track_caller]
    pub fn redis_volume(&self, options: &[&str]) -> String {
        let url = RedisServer::shared().fresh_url();
        self.format(&url, options);
        url
    }

    #[track_caller]
    pub fn format(&self, url: &str, options: &[&str]) {
        let bucket = self.path("bucket").display().to_string();
        let words = ["format", url, "vol", "--bucket", &bucket];
        self.run(&[&words, options].concat()).ok();
    }

    /// Unmounts with `umount`, which waits for the process of the mount to exit.
    #[track_caller]
    pub fn unmount(&self) {
        self.run(&["umount", self.point().to_str().unwrap()]).ok();
    }
}

impl Drop for CliFixture {
    fn drop(&mut self) {
        clear(self.folder.path());
    }
}

/// Unmounts everything below the folder, and ends every process started for it.
fn clear(folder: &Path) {
    let shown = folder.display().to_string();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in table.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
        if point.starts_with(&shown) {
            let _ = Command::new("umount").args(["-l", point]).stderr(Stdio::null()).status();
        }
    }
    let gone = poll(Duration::from_secs(5), || test_processes(folder).is_empty());
    if !gone {
        for pid in test_processes(folder) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    }
}

/// Returns the processes of this test, which are recognized by their `JFS_DATA_DIR`.
pub fn test_processes(folder: &Path) -> Vec<u32> {
    let mark = format!("JFS_DATA_DIR={}", folder.join("data").display());
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    all.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    })
    .collect()
}

/// Reads the `.config` of a mount.
#[track_caller]
pub fn config(point: &Path) -> Value {
    serde_json::from_slice(&fs::read(point.join(".config")).unwrap()).unwrap()
}

/// Returns the PID of the process that serves a mount.
#[track_caller]
pub fn pid(point: &Path) -> u32 {
    u32::try_from(config(point)["Pid"].as_u64().unwrap()).unwrap()
}

/// Sends a signal to a child.
#[track_caller]
pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
    assert!(sent.success());
}

/// Waits for a child and returns its exit code.
#[track_caller]
pub fn exit_code(child: &mut Child) -> i32 {
    let status = wait(child, LIMIT).expect("the program does not exit");
    status.code().unwrap_or_else(|| panic!("ended by {status}"))
}

/// Returns the exit code of a finished program.
pub fn exit_status(finished: &Finished) -> i32 {
    finished.status.code().unwrap_or(-1)
}
