//! The real Go client, to compare with and to check volumes written by this client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::command::{Finished, run};
use super::mount::Mount;

/// Time limit of one command on the small volumes of tests.
const LIMIT: Duration = Duration::from_mins(1);
/// Time limit of the build, by the first test on a machine.
const BUILD: Duration = Duration::from_mins(30);

/// Returns the path of the Go client, built on first use.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/juicefs.sh");
        PathBuf::from(run(Command::new(script), BUILD).ok().stdout.trim_end())
    })
}

/// Returns a command that runs the Go client without access to cloud metadata services.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// Runs one command; the caller checks the result.
#[track_caller]
pub fn juicefs(args: &[&str]) -> Finished {
    run(command(args), LIMIT)
}

/// A volume as the Go client sees it, with a folder for its objects, caches and mount points.
pub struct Volume {
    url: String,
    folder: TempDir,
    mounts: AtomicU32,
}

impl Volume {
    /// Formats a new volume. `options` are those of `juicefs format`.
    #[track_caller]
    pub fn format(url: &str, options: &[&str]) -> Self {
        let volume = Self::existing(url);
        let bucket = volume.folder.path().join("bucket");
        let bucket = bucket.to_str().unwrap();
        let fixed = ["format", url, "volume", "--storage", "file", "--bucket", bucket];
        juicefs(&[&fixed, options].concat()).ok();
        volume
    }

    /// Returns a volume that the caller formats.
    pub fn existing(url: &str) -> Self {
        Self::within(url, TempDir::new().unwrap())
    }

    /// As [`Volume::existing`], with a folder of the caller.
    pub fn within(url: &str, folder: TempDir) -> Self {
        Self { url: url.to_owned(), folder, mounts: AtomicU32::new(0) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the folder of its objects, caches and mount points.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Mounts the volume; `options` are those of `juicefs mount`. Runs no background jobs, so that only
    /// the test changes the metadata.
    #[track_caller]
    pub fn mount(&self, options: &[&str]) -> Mount {
        self.mount_with_jobs(&[&["--no-bgjob"], options].concat())
    }

    /// As [`Volume::mount`], with background jobs.
    #[track_caller]
    pub fn mount_with_jobs(&self, options: &[&str]) -> Mount {
        let folder = self.folder.path();
        let number = self.mounts.fetch_add(1, Ordering::Relaxed);
        let point = folder.join(format!("mnt{number}"));
        let (cache, log) = (point.with_extension("cache"), point.with_extension("log"));
        let mut command = command(&["--no-agent", "mount", "--no-usage-report", "--no-syslog"]);
        command
            .args(["--backup-meta", "0", "--free-space-ratio", "0.01", "--cache-dir"])
            .arg(cache);
        command.args(options).arg(&self.url).arg(&point);
        let mount = Mount::start(command, &point, &log);
        // The kernel shows the mount before the client serves it, and a client that is unmounted in
        // between takes that for a crash and mounts again.
        fs::metadata(&point).unwrap();
        mount
    }

    /// Returns the metadata in the JSON format of `dump`.
    #[track_caller]
    pub fn dump(&self) -> Value {
        parse_json_output(&self.run("dump", &[]).ok().stdout)
    }

    /// Returns the setting, sessions and usage.
    #[track_caller]
    pub fn status(&self) -> Value {
        parse_json_output(&self.run("status", &[]).ok().stdout)
    }

    /// Asserts that all referenced blocks exist and that the usage of directories is right.
    #[track_caller]
    pub fn fsck(&self) {
        self.run("fsck", &[]).ok();
        self.run("fsck", &["--path", "/", "--recursive", "--sync-dir-stat"]).ok();
    }

    #[track_caller]
    pub fn gc(&self, options: &[&str]) -> Finished {
        self.run("gc", options).ok()
    }

    /// Runs `juicefs quota ACTION META-URL OPTIONS`.
    #[track_caller]
    pub fn quota(&self, action: &str, options: &[&str]) -> Finished {
        juicefs(&[&["quota", action, &self.url], options].concat())
    }

    /// Fails the test unless the stored usage of a directory's quota is its real usage.
    #[track_caller]
    pub fn quota_check(&self, path: &str) {
        self.quota("check", &["--path", path]).ok();
    }

    /// Runs any command that takes the metadata URL first.
    #[track_caller]
    pub fn run(&self, action: &str, options: &[&str]) -> Finished {
        juicefs(&[&[action, &self.url], options].concat())
    }
}

/// Parses the JSON that a command printed. The TiKV library logs to stdout as well, in lines that begin
/// with the time in brackets.
pub fn parse_json_output(stdout: &str) -> Value {
    let lines: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("[20")).collect();
    serde_json::from_str(&lines.join("\n")).unwrap()
}
