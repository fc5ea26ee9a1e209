//! Running a suite or a program on a mount: in a process of its own, with a limit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::command::{Finished, run};
use crate::support::fixture::use_program;
use crate::support::timeout;

/// For one suite on a busy machine.
pub const LIMIT: Duration = Duration::from_mins(30);
/// The first test on a machine builds what is missing.
const BUILD: Duration = Duration::from_mins(30);
/// What two suites at a time leave behind before it is collected, and more.
const ENOUGH: u64 = 8 << 30;

/// Runs a test body on mounts of a program that is fast enough, within a limit.
pub fn within_limit(body: impl FnOnce() + Send + 'static) {
    use_program(made_by("optimised.sh", &[]));
    use_memory();
    timeout::within(LIMIT, body);
}

/// Puts what is below the mounts into memory, if there is enough: what survives a crash is tested
/// elsewhere, and half of a suite's time would be waiting for the disk.
fn use_memory() {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    if room >= ENOUGH {
        // The first test has said it for all.
        let _ = tempfile::env::override_temp_dir(memory);
    }
}

/// The program of a suite, built on first use.
pub fn built(name: &str) -> PathBuf {
    made_by("suites.sh", &[name])
}

/// The path that a script prints.
fn made_by(script: &str, words: &[&str]) -> PathBuf {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let mut command = Command::new(peers.join(script));
    command.args(words);
    PathBuf::from(run(command, BUILD).ok().stdout.trim_end())
}

/// Runs a shell script in a folder; its words are `$1` and so on. It ends at the first command that
/// fails.
#[track_caller]
pub fn script(folder: &Path, text: &str, words: &[&str]) -> Finished {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text, "bash"]).args(words).current_dir(folder);
    // Nobody's settings but these.
    command.env("HOME", "/nonexistent").env("LC_ALL", "C.UTF-8");
    run(command, LIMIT)
}
