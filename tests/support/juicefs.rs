//! The real Go client, for comparing with and for checking what we wrote.

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

/// For one command on the small volumes that tests make.
const LIMIT: Duration = Duration::from_mins(1);
/// The first test on a machine builds the client.
const BUILD: Duration = Duration::from_mins(30);

/// The program, built on first use.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/juicefs.sh");
        PathBuf::from(run(Command::new(script), BUILD).ok().stdout.trim_end())
    })
}

/// The program, not yet started; it asks nobody on the network about itself.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// Runs one command; the caller judges the outcome.
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
    /// Formats a fresh volume. `options` are those of `juicefs format`.
    #[track_caller]
    pub fn format(url: &str, options: &[&str]) -> Self {
        let volume = Self::existing(url);
        let bucket = volume.folder.path().join("bucket");
        let bucket = bucket.to_str().unwrap();
        let fixed = ["format", url, "volume", "--storage", "file", "--bucket", bucket];
        juicefs(&[&fixed, options].concat()).ok();
        volume
    }

    /// A volume that someone else has formatted or will.
    pub fn existing(url: &str) -> Self {
        Self::within(url, TempDir::new().unwrap())
    }

    /// As [`Volume::existing`], with a folder that holds more than what it needs.
    pub fn within(url: &str, folder: TempDir) -> Self {
        Self { url: url.to_owned(), folder, mounts: AtomicU32::new(0) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it keeps what it needs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Mounts it; `options` are those of `juicefs mount`. Runs no background jobs, so that the
    /// metadata holds what the test did and nothing else.
    #[track_caller]
    pub fn mount(&self, options: &[&str]) -> Mount {
        self.mount_with_jobs(&[&["--no-bgjob"], options].concat())
    }

    /// As [`Volume::mount`], with the jobs.
    #[track_caller]
    pub fn mount_with_jobs(&self, options: &[&str]) -> Mount {
        let folder = self.folder.path();
        let number = self.mounts.fetch_add(1, Ordering::Relaxed);
        let point = folder.join(format!("mnt{number}"));
        let (cache, log) = (point.with_extension("cache"), point.with_extension("log"));
        let mut command = command(&["--no-agent", "mount", "--no-usage-report", "--no-syslog"]);
        command.args(["--backup-meta", "0", "--cache-dir"]).arg(cache);
        command.args(options).arg(&self.url).arg(&point);
        let mount = Mount::start(command, &point, &log);
        // The kernel shows it before the client serves it, and a client whose mount goes away in
        // between takes that for a crash and mounts again.
        fs::metadata(&point).unwrap();
        mount
    }

    /// The metadata in the first, JSON form of `dump`.
    #[track_caller]
    pub fn dump(&self) -> Value {
        answer(&self.run("dump", &[]).ok().stdout)
    }

    /// Setting, sessions and usage.
    #[track_caller]
    pub fn status(&self) -> Value {
        answer(&self.run("status", &[]).ok().stdout)
    }

    /// Every block that metadata names is there, and directories agree with their entries.
    #[track_caller]
    pub fn fsck(&self) {
        self.run("fsck", &[]).ok();
        self.run("fsck", &["--path", "/", "--recursive", "--sync-dir-stat"]).ok();
    }

    #[track_caller]
    pub fn gc(&self, options: &[&str]) -> Finished {
        self.run("gc", options).ok()
    }

    /// `juicefs quota ACTION META-URL OPTIONS`.
    #[track_caller]
    pub fn quota(&self, action: &str, options: &[&str]) -> Finished {
        juicefs(&[&["quota", action, &self.url], options].concat())
    }

    /// Fails the test unless the stored usage of a directory's quota is its real usage.
    #[track_caller]
    pub fn quota_check(&self, path: &str) {
        self.quota("check", &["--path", path]).ok();
    }

    /// Any command that takes the metadata address first.
    #[track_caller]
    pub fn run(&self, action: &str, options: &[&str]) -> Finished {
        juicefs(&[&[action, &self.url], options].concat())
    }
}

/// The JSON in what a command printed. The library for TiKV logs to the same place, in lines that
/// begin with the time in brackets.
pub fn answer(stdout: &str) -> Value {
    let lines: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("[20")).collect();
    serde_json::from_str(&lines.join("\n")).unwrap()
}
