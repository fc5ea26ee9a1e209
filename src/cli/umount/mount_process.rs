//! The process that serves a mount, as the mount's `.config` describes it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tracing::warn;

/// How long to wait for a mount to return its `.config`.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two checks whether the process still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub struct MountProcess {
    pid: u32,
    /// When the process started, which tells it from another with a reused PID; `None` if it is not
    /// visible from here.
    start_time: Option<String>,
    /// Whether it is this client, not the Go client.
    ours: bool,
    /// The volume's staging directories; empty without `--writeback`.
    pub staging_dirs: Vec<PathBuf>,
}

impl MountProcess {
    /// Reads `.config` of a mount, ours or the Go client's.
    pub fn of(point: &Path) -> anyhow::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let dir = point.to_owned();
        thread::Builder::new().spawn(move || drop(sender.send(read_config(&dir))))?;
        let text = match receiver.recv_timeout(CONFIG_TIMEOUT) {
            Ok(text) => text.with_context(|| format!("{}: .config", point.display()))?,
            Err(_) => bail!("{}: the mount does not respond", point.display()),
        };
        let config: Value = serde_json::from_slice(&text).with_context(|| {
            format!("{}: .config is not that of a mount ({} bytes)", point.display(), text.len())
        })?;
        let pid = config["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let ours = config["Version"].as_str().is_some_and(|version| version.contains("+jfs-"));
        let staging_dirs = staging_dirs(&config["Chunk"]);
        Ok(Self { pid, start_time: start_time(pid), ours, staging_dirs })
    }

    /// Asks the process to upload everything before it exits, and returns whether it was asked: the
    /// Go client has no such signal.
    pub fn ask_to_flush(&self) -> bool {
        let pid = i32::try_from(self.pid).map(Pid::from_raw);
        let is_ours = self.ours && self.is_running();
        is_ours && pid.is_ok_and(|pid| kill(pid, Signal::SIGUSR1).is_ok())
    }

    /// Returns whether the process is visible from here and still runs.
    pub fn is_running(&self) -> bool {
        self.start_time.is_some() && start_time(self.pid) == self.start_time
    }

    /// Waits until the process has exited, at most for `limit`.
    pub fn wait_for_exit(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                return warn!(
                    "process {} is still storing written data; not waiting any longer",
                    self.pid
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn read_config(point: &Path) -> io::Result<Vec<u8>> {
    match fs::read(point.join(".jfs.config")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read(point.join(".config")),
        read => read,
    }
}

/// Returns when the process started, if it is one that serves mounts: in another PID namespace an
/// unrelated process may have the same PID.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let mut fields = after.split_whitespace();
    // A zombie: exited, but not yet reaped by its parent.
    let exited = fields.next()? == "Z";
    let started = fields.nth(18)?.to_owned();
    (!exited && (name.starts_with("jfs-mount") || name.starts_with("juicefs"))).then_some(started)
}

fn staging_dirs(chunk: &Value) -> Vec<PathBuf> {
    if chunk["Writeback"] != true {
        return Vec::new();
    }
    let dirs = chunk["CacheDir"].as_str().unwrap_or_default();
    dirs.split(':')
        .filter(|dir| !dir.is_empty())
        .map(|dir| Path::new(dir).join("rawstaging"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_cache_directory_has_a_staging_directory() {
        let chunk = json!({ "Writeback": true, "CacheDir": "/a/uuid:/b/uuid" });
        let dirs = staging_dirs(&chunk);
        assert_eq!(dirs, [PathBuf::from("/a/uuid/rawstaging"), "/b/uuid/rawstaging".into()]);
        assert!(staging_dirs(&json!({ "Writeback": false, "CacheDir": "/a" })).is_empty());
    }

    #[test]
    fn a_process_that_serves_no_mount_has_no_start_time() {
        assert_eq!(start_time(std::process::id()), None);
        assert_eq!(start_time(0), None);
    }

    #[test]
    fn regression_an_invalid_config_is_reported_with_the_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{\"Pid\": 1", "\0\0\0"] {
            fs::write(dir.path().join(".config"), text).unwrap();
            let error = format!("{:#}", MountProcess::of(dir.path()).err().unwrap());
            let place = dir.path().display().to_string();
            assert!(error.starts_with(&place) && error.contains(".config is not"), "{error}");
        }
    }

    #[test]
    fn a_missing_config_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", MountProcess::of(dir.path()).err().unwrap());
        assert!(error.contains(".config"), "{error}");
    }
}
