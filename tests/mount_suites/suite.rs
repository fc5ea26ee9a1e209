//! Running a suite or a program on a mount: in a process of its own, with a limit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::command::{Finished, run};

/// For one suite on a busy machine.
pub const LIMIT: Duration = Duration::from_mins(20);
/// The first test on a machine builds the suites.
const BUILD: Duration = Duration::from_mins(30);

/// The program of a suite, built on first use.
pub fn built(name: &str) -> PathBuf {
    let mut script =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/suites.sh"));
    script.arg(name);
    PathBuf::from(run(script, BUILD).ok().stdout.trim_end())
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
