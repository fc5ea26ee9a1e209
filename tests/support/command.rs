//! Running programs, each with a time limit.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a killed process may take to exit.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// The output and status of a finished program.
#[derive(Debug)]
pub struct Finished {
    pub command: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Fails the test, showing the output, unless the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// Fails the test unless the program failed.
    #[track_caller]
    pub fn refused(self) -> Self {
        assert!(!self.status.success(), "should have failed: {self}");
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, status, stdout, stderr } = self;
        write!(f, "{command}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// Runs the program to its end. At the limit, kills it and all its children, and fails the test.
#[track_caller]
pub fn run(mut command: Command, limit: Duration) -> Finished {
    let shown = shown(&command);
    // A process group of its own, so that its children can be killed with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let ended = wait(&mut child, limit);
    if ended.is_none() {
        kill_group(&mut child);
    }
    let (stdout, stderr) = (text(stdout), text(stderr));
    match ended {
        Some(status) => Finished { command: shown, status, stdout, stderr },
        None => panic!(
            "{shown}: still running after {limit:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        ),
    }
}

/// Waits for a child to exit, but no longer than the limit.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Kills a child that was started in a group of its own, and everything in the group.
pub fn kill_group(child: &mut Child) {
    // The shell's own `kill`, since signalling a group has no safe call in std.
    // Without `--`, which not every shell takes.
    let group = format!("kill -KILL -{}", child.id());
    let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
    let _ = child.kill();
    // A process that hangs in the kernel cannot exit before what it waits for.
    let _ = wait(child, AFTER_KILL);
}

/// Calls `ready` until it returns true; returns false at the limit.
pub fn poll(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !ready() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut all);
        }
        all
    })
}

fn text(reader: thread::JoinHandle<Vec<u8>>) -> String {
    // A process that inherited the pipe may still run.
    if !poll(AFTER_KILL, || reader.is_finished()) {
        return "(still open)".to_owned();
    }
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}
