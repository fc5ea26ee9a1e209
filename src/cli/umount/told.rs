//! What a mount tells about the process behind it.

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

/// What answers later than this does not answer.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

pub struct Told {
    pid: u32,
    /// Where the process is seen, and which one it is: numbers are used again.
    process: Option<String>,
    ours: bool,
    /// Of the volume in the cache; none if nothing is uploaded later.
    pub staging: Vec<PathBuf>,
}

/// Reads `.config` of a mount, ours or the Go client's.
pub fn ask(point: &Path) -> anyhow::Result<Told> {
    let (tell, told) = mpsc::channel();
    let dir = point.to_owned();
    thread::Builder::new().spawn(move || drop(tell.send(config(&dir))))?;
    let text = match told.recv_timeout(PATIENCE) {
        Ok(text) => text.with_context(|| format!("{}: .config", point.display()))?,
        Err(_) => bail!("{}: does not answer", point.display()),
    };
    let config: Value = serde_json::from_slice(&text).with_context(|| {
        format!("{}: .config is not that of a mount ({} bytes)", point.display(), text.len())
    })?;
    let pid = config["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let ours = config["Version"].as_str().is_some_and(|version| version.contains("+jfs-"));
    Ok(Told { pid, process: seen(pid), ours, staging: staging(&config["Chunk"]) })
}

impl Told {
    /// Asks the process to upload everything before it ends. The Go client's knows no such thing.
    pub fn ask_to_flush(&self) -> bool {
        let pid = i32::try_from(self.pid).map(Pid::from_raw);
        let is_ours = self.ours && self.is_running();
        is_ours && pid.is_ok_and(|pid| kill(pid, Signal::SIGUSR1).is_ok())
    }

    /// Whether the process can be seen from here.
    pub fn is_running(&self) -> bool {
        self.process.is_some() && seen(self.pid) == self.process
    }

    /// Waits until the process has ended.
    pub fn wait_for_end(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                return warn!("process {} still stores what was written", self.pid);
            }
            thread::sleep(PAUSE);
        }
    }
}

fn config(point: &Path) -> io::Result<Vec<u8>> {
    match fs::read(point.join(".jfs.config")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read(point.join(".config")),
        read => read,
    }
}

/// When the process began, if it serves mounts: another may have its number in another namespace.
fn seen(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let mut fields = after.split_whitespace();
    // One that has ended and was not asked for its status yet.
    let ended = fields.next()? == "Z";
    let began = fields.nth(18)?.to_owned();
    (!ended && (name.starts_with("jfs-mount") || name.starts_with("juicefs"))).then_some(began)
}

fn staging(chunk: &Value) -> Vec<PathBuf> {
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
    fn staging_is_in_every_directory_of_the_cache() {
        let chunk = json!({ "Writeback": true, "CacheDir": "/a/uuid:/b/uuid" });
        let dirs = staging(&chunk);
        assert_eq!(dirs, [PathBuf::from("/a/uuid/rawstaging"), "/b/uuid/rawstaging".into()]);
        assert!(staging(&json!({ "Writeback": false, "CacheDir": "/a" })).is_empty());
    }

    #[test]
    fn a_process_that_serves_nothing_is_not_waited_for() {
        assert_eq!(seen(std::process::id()), None);
        assert_eq!(seen(0), None);
    }

    #[test]
    fn regression_what_is_no_config_is_named_by_its_place() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{\"Pid\": 1", "\0\0\0"] {
            fs::write(dir.path().join(".config"), text).unwrap();
            let error = format!("{:#}", ask(dir.path()).err().unwrap());
            let place = dir.path().display().to_string();
            assert!(error.starts_with(&place) && error.contains(".config is not"), "{error}");
        }
    }

    #[test]
    fn a_place_without_config_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", ask(dir.path()).err().unwrap());
        assert!(error.contains(".config"), "{error}");
    }
}
