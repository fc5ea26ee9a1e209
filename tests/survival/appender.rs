//! A program that appends lines as programs do that want to be sure: it syncs each of them, and after
//! an error it closes the file and looks which lines are there.
//!
//! It is a process of its own. A lost write is reported until the last descriptor of the file is
//! closed, and a process that starts others, as this test program does, has copies of its descriptors
//! in each of them until that executes its program: while no server answers their close, they stay.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, io, thread};

/// The file to append to, in the environment of the process.
const FILE: &str = "JFS_TEST_APPEND_TO";
/// Where the process writes what came of it.
const OUTCOME: &str = "JFS_TEST_APPENDED";

pub struct Appender {
    process: Child,
    outcome: PathBuf,
}

/// What an appender has done.
pub struct Appended {
    /// Lines that are in the file, as far as it knows.
    pub lines: u32,
    pub errors: u32,
}

impl Appender {
    /// Starts to append to a file. The outcome is written to another, which is not on the mount.
    pub fn start(file: &Path, outcome: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "appender::appends_until_its_input_ends"]);
        command.env(FILE, file).env(OUTCOME, outcome).stdin(Stdio::piped()).stdout(Stdio::null());
        Self { process: command.spawn().unwrap(), outcome: outcome.to_owned() }
    }

    /// Has it end after the line that it is at. `None` if it failed; it has said why.
    pub fn finish(mut self) -> Option<Appended> {
        drop(self.process.stdin.take());
        if !self.process.wait().unwrap().success() {
            return None;
        }
        let outcome = fs::read_to_string(&self.outcome).ok()?;
        let (lines, errors) = outcome.split_once(' ')?;
        Some(Appended { lines: lines.parse().ok()?, errors: errors.parse().ok()? })
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // Without effect if it has ended.
        let _ = self.process.kill();
        let _ = self.process.try_wait();
    }
}

/// The process of an [`Appender`], which starts it.
#[test]
fn appends_until_its_input_ends() {
    let (Some(file), Some(outcome)) = (env::var_os(FILE), env::var_os(OUTCOME)) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Relaxed);
    });
    let Appended { lines, errors } = append(Path::new(&file), &is_over);
    fs::write(outcome, format!("{lines} {errors}")).unwrap();
}

fn append(path: &Path, is_over: &AtomicBool) -> Appended {
    let open = || OpenOptions::new().append(true).create(true).open(path).unwrap();
    let (mut file, mut lines, mut errors) = (open(), 0_u32, 0);
    while !is_over.load(Ordering::Relaxed) {
        let text = format!("{lines}\n");
        if file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).is_ok() {
            lines += 1;
            continue;
        }
        errors += 1;
        // The error stays until the last descriptor is closed.
        drop(file);
        file = open();
        let found = fs::read_to_string(path).unwrap();
        lines = u32::try_from(found.lines().count()).unwrap();
    }
    Appended { lines, errors }
}
