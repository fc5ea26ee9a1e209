//! Runs a suite or a program on a mount: in its own process, with a timeout.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::command::{Finished, run};
use crate::support::fixture::use_program;
use crate::support::timeout;

/// For one suite on a busy machine.
pub const LIMIT: Duration = Duration::from_mins(30);
/// The first test on a machine builds missing programs.
const BUILD: Duration = Duration::from_mins(30);
/// More than two suites at a time leave behind before garbage collection.
const ENOUGH: u64 = 8 << 30;

/// Runs a test body within the timeout, on mounts of an optimized program.
pub fn within_limit(body: impl FnOnce() + Send + 'static) {
    use_program(made_by("optimised.sh", &[]));
    use_memory();
    timeout::within(LIMIT, body);
}

/// Puts the stores below the mounts into memory, if there is enough: crashes are tested elsewhere,
/// and half of a suite's time would be waiting for the disk.
fn use_memory() {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    if room >= ENOUGH {
        // The first test has printed it for all.
        let _ = tempfile::env::override_temp_dir(memory);
    }
}

/// Returns the program of a suite, built on first use.
pub fn built(name: &str) -> PathBuf {
    made_by("suites.sh", &[name])
}

/// Returns the path that a script prints.
fn made_by(script: &str, words: &[&str]) -> PathBuf {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let mut command = Command::new(peers.join(script));
    command.args(words);
    PathBuf::from(run(command, BUILD).ok().stdout.trim_end())
}

/// Runs a shell script in a folder; its arguments are `$1` and so on. It stops at the first command
/// that fails.
#[track_caller]
pub fn script(folder: &Path, text: &str, words: &[&str]) -> Finished {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text, "bash"]).args(words).current_dir(folder);
    // No user settings but these.
    command.env("HOME", "/nonexistent").env("LC_ALL", "C.UTF-8");
    run(command, LIMIT)
}
