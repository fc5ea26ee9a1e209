//! Other processes: operations that may hang run there, and POSIX locks belong to a process.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};
use nix::sys::signal::Signal;

use crate::support::command::wait;
use crate::support::fixture::{PATIENCE, signal};

/// The test that runs as another process, and the variable that tells it what to do.
const PART: &str = "process::another_process";
const ORDER: &str = "JFS_TEST_ORDER";

/// The kind of a range lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Unlock,
}

/// Sets a POSIX lock of this process; 0 bytes means to the end.
pub fn posix(file: &std::fs::File, kind: Kind, start: i64, len: i64) -> nix::Result<()> {
    fcntl(file, FcntlArg::F_SETLK(&range(kind, start, len))).map(drop)
}

/// Sets an open file description lock.
pub fn of_file(file: &std::fs::File, kind: Kind, start: i64, len: i64) -> nix::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&range(kind, start, len))).map(drop)
}

/// Returns a lock that conflicts with a POSIX lock: its process and range.
pub fn in_the_way(file: &std::fs::File, kind: Kind) -> Option<(i32, i64, i64)> {
    let mut found = range(kind, 0, 0);
    fcntl(file, FcntlArg::F_GETLK(&mut found)).unwrap();
    let free = i32::from(found.l_type) == F_UNLCK;
    (!free).then_some((found.l_pid, found.l_start, found.l_len))
}

/// Another process, killed when dropped.
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts a process that takes a POSIX lock, prints `locked`, and keeps it until its end. It
    /// prints `waiting` before it waits for the lock.
    pub fn locking(path: &Path, kind: Kind, start: i64, len: i64) -> Self {
        Self::playing(&format!("{kind:?} {start} {len} {}", path.display()))
    }

    /// Starts a process that repeatedly closes a locked file and at once locks it through another
    /// handle. It prints `free` if that was never refused.
    pub fn relocking(path: &Path) -> Self {
        Self::playing(&format!("Relock 0 0 {}", path.display()))
    }

    fn playing(order: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", PART, "--ignored", "--nocapture"]);
        command.env(ORDER, order);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn says(&mut self, word: &str) {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.trim() == word {
                return;
            }
            line.clear();
        }
        panic!("never said {word}: {}", self.complaint());
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Gives it time to block.
    #[track_caller]
    pub fn blocks(&mut self) {
        thread::sleep(Duration::from_millis(500));
        assert!(self.is_running(), "it should have waited: {}", self.complaint());
    }

    /// Ends it and waits for that.
    #[track_caller]
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(wait(&mut self.child, PATIENCE).is_some(), "it does not end");
    }

    /// Waits for its end. Returns whether it succeeded.
    #[track_caller]
    pub fn finish(mut self) -> bool {
        wait(&mut self.child, PATIENCE).expect("it does not end").success()
    }

    fn complaint(&mut self) -> String {
        let mut all = String::new();
        if !self.is_running()
            && let Some(mut stderr) = self.child.stderr.take()
        {
            let _ = stderr.read_to_string(&mut all);
        }
        all
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = wait(&mut self.child, Duration::from_secs(5));
    }
}

#[test]
#[ignore = "the part of another process, played for other tests"]
fn another_process() {
    let Ok(order) = env::var(ORDER) else { return };
    let words: Vec<&str> = order.splitn(4, ' ').collect();
    let [kind, start, len, path] = words[..] else { panic!("{order}") };
    if kind == "Relock" {
        return relock(path);
    }
    let kind = if kind == "Read" { Kind::Read } else { Kind::Write };
    let lock = range(kind, start.parse().unwrap(), len.parse().unwrap());
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    if fcntl(&file, FcntlArg::F_SETLK(&lock)).is_err() {
        say("waiting");
        fcntl(&file, FcntlArg::F_SETLKW(&lock)).unwrap();
    }
    say("locked");
    let _ = std::io::stdin().read(&mut [0]);
}

/// In a process without other threads: a child that one of these starts has all files open for a
/// moment, and holds their locks.
fn relock(path: &str) {
    let open = || OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut held = open();
    held.try_lock().unwrap();
    for turn in 0..150 {
        let next = open();
        drop(held);
        assert!(next.try_lock().is_ok(), "flock of turn {turn}");
        held = next;
    }
    of_file(&held, Kind::Write, 0, 10).unwrap();
    for turn in 0..100 {
        let next = open();
        drop(held);
        assert_eq!(of_file(&next, Kind::Write, 5, 10), Ok(()), "range of turn {turn}");
        held = next;
    }
    say("free");
}

fn say(word: &str) {
    println!("\n{word}");
    std::io::stdout().flush().unwrap();
}

fn range(kind: Kind, start: i64, len: i64) -> flock {
    let kind = match kind {
        Kind::Read => F_RDLCK,
        Kind::Write => F_WRLCK,
        Kind::Unlock => F_UNLCK,
    };
    let whence = SEEK_SET.try_into().unwrap();
    let kind = kind.try_into().unwrap();
    flock { l_type: kind, l_whence: whence, l_start: start, l_len: len, l_pid: 0 }
}
