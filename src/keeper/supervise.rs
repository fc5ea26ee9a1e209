//! The server as a child of the keeper, on hosts without Kubernetes.
//!
//! The keeper starts the server, restarts it when it dies, ends when it ends by itself or has failed to
//! mount, and replaces it by another program: that is started beside it as the *standby*, which connects, prepares and asks. If
//! it becomes the owner, it is the server; the one before is *retired* and ends, or waits as a spare.
//! Otherwise the server serves on, and whoever asked for the upgrade is told why.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::ownership::ClientId;
use super::reexec::close_stdin;
use super::server::{Notice, Server, log};

/// Environment variable that tells a server where its keeper listens.
pub const SOCKET_VARIABLE: &str = "JFS_KEEPER_SOCKET";

/// A server that is killed this often within this time, and never serves, is not started again.
const MAX_DEATHS: usize = 5;
const DEATH_WINDOW: Duration = Duration::from_secs(30);
/// Before the second restart; doubles up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// How long a standby may take to become the owner. The keeper's limit to yield comes on top.
const PREPARE_LIMIT: Duration = Duration::from_secs(150);
/// Between the end of a standby's connection and its own.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// Between asking a standby to end and killing it.
const KILL_DELAY: Duration = Duration::from_secs(10);

/// How to run a program with its arguments. The descriptor stays open until it has been started.
pub type Prepare = fn(&Path, &[OsString]) -> io::Result<(Command, Option<OwnedFd>)>;

/// Runs a program with its arguments as they are.
pub fn plain(program: &Path, words: &[OsString]) -> io::Result<(Command, Option<OwnedFd>)> {
    let mut command = Command::new(program);
    command.args(words);
    Ok((command, None))
}

/// A file and the arguments that it is run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub file: OsString,
    pub words: Vec<OsString>,
}

/// What the keeper is to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    /// The server has been replaced by another program, which may replace the keeper's as well.
    Upgraded,
    /// There is nothing left to supervise: end with this exit status.
    End(u8),
}

/// The state, for another run of the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    program: Program,
    server: Option<(i32, bool)>,
    retired: Vec<(i32, Program)>,
}

#[derive(Debug)]
pub struct Supervisor {
    program: Program,
    prepare: Prepare,
    socket: PathBuf,
    server: Option<Child>,
    standby: Option<Standby>,
    /// Servers that have been replaced, with the program of each, and standbys that failed.
    retired: Vec<(i32, Program)>,
    /// Failed standbys, and when to kill them.
    terminating: Vec<(i32, Instant)>,
    /// When servers died that never served.
    deaths: VecDeque<Instant>,
    backoff: Duration,
    restart_at: Option<Instant>,
    is_first: bool,
    is_ending: bool,
    /// The exit status of a server that is not restarted; a spare may still follow it.
    given_up: Option<u8>,
    next: Next,
}

#[derive(Debug)]
struct Child {
    pid: i32,
    started: Instant,
    has_owned: bool,
}

#[derive(Debug)]
struct Standby {
    child: Child,
    program: Program,
    requester: Option<(ClientId, u32)>,
    until: Instant,
    /// What failed, if it does not end before `until`.
    failure: &'static str,
}

impl Supervisor {
    pub fn new(program: Program, socket: &Path, prepare: Prepare) -> Self {
        Self {
            program,
            prepare,
            socket: socket.to_owned(),
            server: None,
            standby: None,
            retired: Vec::new(),
            terminating: Vec::new(),
            deaths: VecDeque::new(),
            backoff: Duration::ZERO,
            restart_at: Some(Instant::now()),
            is_first: true,
            is_ending: false,
            given_up: None,
            next: Next::GoOn,
        }
    }

    pub fn restored(saved: Saved, socket: &Path, prepare: Prepare) -> Self {
        let mut all = Self::new(saved.program, socket, prepare);
        let started = Instant::now();
        all.server = saved.server.map(|(pid, has_owned)| Child { pid, started, has_owned });
        all.restart_at = all.server.is_none().then_some(started);
        all.retired = saved.retired;
        all.is_first = false;
        all
    }

    pub fn save(&self) -> Saved {
        Saved {
            program: self.program.clone(),
            server: self.server.as_ref().map(|server| (server.pid, server.has_owned)),
            retired: self.retired.clone(),
        }
    }

    /// The program that serves.
    pub fn program(&self) -> &Path {
        Path::new(&self.program.file)
    }

    /// Returns what the keeper is to do. [`Next::Upgraded`] is returned once.
    pub fn take_next(&mut self) -> Next {
        match &self.next {
            Next::End(status) => Next::End(*status),
            _ => std::mem::replace(&mut self.next, Next::GoOn),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let standby = self.standby.as_ref().map(|standby| standby.until);
        let terminating = self.terminating.iter().map(|(_, at)| *at).min();
        [self.restart_at, standby, terminating].into_iter().flatten().min()
    }

    /// Does what is due by the time.
    pub fn tick(&mut self, keeper: &mut Server) {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            self.start(now);
        }
        if self.standby.as_ref().is_some_and(|standby| standby.until <= now) {
            let why = self.standby.as_ref().map_or("", |standby| standby.failure);
            self.fail_standby(keeper, why);
        }
        for (pid, _) in self.terminating.iter().filter(|(_, at)| *at <= now) {
            signal(*pid, Signal::SIGKILL);
        }
        self.terminating.retain(|(_, at)| *at > now);
    }

    pub fn notice(&mut self, keeper: &mut Server, notice: Notice) {
        let stands_by = |pid: i32| self.standby.as_ref().is_some_and(|s| s.child.pid == pid);
        match notice {
            Notice::Owns { pid } => self.owns(keeper, pid),
            Notice::Refused { pid } if stands_by(pid) => {
                self.fail_standby(keeper, "the running server has not yielded in time");
            }
            Notice::Declined { pid, reason } if stands_by(pid) => {
                self.fail_standby(keeper, &reason);
            }
            Notice::Left { pid } => {
                if let Some(standby) = self.standby.as_mut().filter(|s| s.child.pid == pid) {
                    standby.failure = "it has left the keeper before it was ready";
                    standby.until = standby.until.min(Instant::now() + LEAVE_LIMIT);
                }
            }
            Notice::Upgrade { client, tag, program } => {
                self.upgrade(keeper, Some((client, tag)), &program);
            }
            Notice::Refused { .. } | Notice::Declined { .. } => {}
        }
    }

    /// Starts a standby. An empty `file` is that of the running server.
    pub fn upgrade(&mut self, keeper: &mut Server, requester: Option<(ClientId, u32)>, file: &str) {
        let file = if file.is_empty() { self.program.file.clone() } else { file.into() };
        let program = Program { file, words: self.program.words.clone() };
        let result = if self.standby.is_some() {
            Err("another upgrade is under way".to_owned())
        } else if self.is_ending {
            Err("the server is being stopped".to_owned())
        } else if !Path::new(&program.file).is_absolute() {
            Err(format!("{}: not an absolute path", Path::new(&program.file).display()))
        } else {
            self.spawn(&program)
        };
        match result {
            Ok(child) => {
                log(&format!("process {} stands by to replace the server", child.pid));
                let until = child.started + PREPARE_LIMIT;
                let failure = "it has not become ready in time";
                self.standby = Some(Standby { child, program, requester, until, failure });
            }
            Err(reason) => answer(keeper, requester, Err(reason)),
        }
    }

    /// A child has ended.
    pub fn ended(&mut self, keeper: &mut Server, status: WaitStatus) {
        let Some(pid) = status.pid().map(Pid::as_raw) else { return };
        self.retired.retain(|(retired, _)| *retired != pid);
        self.terminating.retain(|(terminating, _)| *terminating != pid);
        if self.standby.as_ref().is_some_and(|standby| standby.child.pid == pid) {
            return self.fail_standby(keeper, &format!("it {}", shown(status)));
        }
        let Some(server) = self.server.take_if(|server| server.pid == pid) else {
            return self.end_if_last();
        };
        log(&format!("the server, process {pid}, {}", shown(status)));
        let holds_mounts = keeper.held() > 0;
        let has_failed = !holds_mounts && matches!(status, WaitStatus::Exited(..));
        if self.is_ending || has_failed || matches!(status, WaitStatus::Exited(_, 0)) {
            self.end(exit_status(status));
        } else if server.has_owned && holds_mounts {
            self.deaths.clear();
            self.restart(&server);
        } else {
            let now = Instant::now();
            self.deaths.retain(|at| now.saturating_duration_since(*at) < DEATH_WINDOW);
            self.deaths.push_back(now);
            if self.deaths.len() < MAX_DEATHS {
                return self.restart(&server);
            }
            log(&format!(
                "giving up: the server has died {MAX_DEATHS} times without serving, the last time it {}",
                shown(status)
            ));
            self.given_up = Some(exit_status(status).max(1));
            self.end_if_last();
        }
    }

    /// Passes a signal on to the server. The keeper ends when it has ended.
    pub fn stop(&mut self, by: Signal) {
        self.is_ending = true;
        self.restart_at = None;
        let standby = self.standby.as_ref().map(|standby| &standby.child);
        for child in self.server.iter().chain(standby) {
            signal(child.pid, by);
        }
        self.end_if_last();
    }

    fn owns(&mut self, keeper: &mut Server, pid: i32) {
        if let Some(standby) = self.standby.take_if(|standby| standby.child.pid == pid) {
            if let Some(old) = self.server.take() {
                self.retired.push((old.pid, self.program.clone()));
            }
            log(&format!("process {pid} serves now"));
            self.server = Some(Child { has_owned: true, ..standby.child });
            self.program = standby.program;
            self.given_up = None;
            self.restart_at = None;
            self.deaths.clear();
            self.next = Next::Upgraded;
            answer(keeper, standby.requester, Ok(()));
        } else if let Some(server) = self.server.as_mut().filter(|server| server.pid == pid) {
            server.has_owned = true;
            self.deaths.clear();
        } else if let Some(at) = self.retired.iter().position(|(retired, _)| *retired == pid) {
            // The new program does not serve, and the one before waited as a spare.
            let (pid, program) = self.retired.swap_remove(at);
            log(&format!("process {pid} serves again: the program that replaced it does not"));
            if let Some(failed) = self.server.take() {
                self.terminate(failed.pid);
            }
            self.server = Some(Child { pid, started: Instant::now(), has_owned: true });
            self.program = program;
            self.given_up = None;
            self.restart_at = None;
            self.deaths.clear();
        }
    }

    fn fail_standby(&mut self, keeper: &mut Server, why: &str) {
        let Some(standby) = self.standby.take() else { return };
        let file = Path::new(&standby.program.file).display().to_string();
        let reason = format!("{file} does not replace the server: {why}");
        log(&reason);
        answer(keeper, standby.requester, Err(reason));
        self.terminate(standby.child.pid);
        if self.is_ending {
            self.end_if_last();
        } else if self.server.is_none() && self.restart_at.is_none() && self.given_up.is_none() {
            self.restart_at = Some(Instant::now());
        }
    }

    /// Asks a process to end, and kills it later.
    fn terminate(&mut self, pid: i32) {
        signal(pid, Signal::SIGTERM);
        self.terminating.push((pid, Instant::now() + KILL_DELAY));
    }

    fn restart(&mut self, died: &Child) {
        let now = Instant::now();
        if now.saturating_duration_since(died.started) > DEATH_WINDOW {
            self.backoff = Duration::ZERO;
        }
        // A standby that becomes ready follows; one that does not leads to a restart.
        if self.standby.is_none() {
            self.restart_at = Some(now + self.backoff);
        }
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
    }

    fn start(&mut self, now: Instant) {
        match self.spawn(&self.program.clone()) {
            Ok(child) => {
                log(&format!("started the server, process {}", child.pid));
                self.server = Some(child);
            }
            Err(reason) if self.is_first => {
                log(&reason);
                self.end(1);
            }
            // It served before, and the file may be about to be replaced.
            Err(reason) => {
                log(&reason);
                self.restart_at = Some(now + LONGEST_BACKOFF);
            }
        }
        self.is_first = false;
    }

    fn spawn(&mut self, program: &Program) -> Result<Child, String> {
        let file = Path::new(&program.file);
        let failed = |error: io::Error| format!("{}: cannot be started: {error}", file.display());
        let (mut command, kept) = (self.prepare)(file, &program.words).map_err(failed)?;
        // The first server may have to report to whoever started the keeper.
        command.stdin(if self.is_first { Stdio::inherit() } else { Stdio::null() });
        // A signal from a terminal is for the keeper, which passes it on.
        command.env(SOCKET_VARIABLE, &self.socket).process_group(0);
        admit_signals(&mut command);
        let child = command.spawn().map_err(failed)?;
        drop(kept);
        if self.is_first {
            close_stdin().map_err(failed)?;
        }
        let pid = i32::try_from(child.id()).map_err(|_| "a PID out of range".to_owned())?;
        Ok(Child { pid, started: Instant::now(), has_owned: false })
    }

    fn end_if_last(&mut self) {
        if self.server.is_some() || self.next != Next::GoOn {
            return;
        }
        match self.given_up {
            Some(status) if self.is_ending || self.retired.is_empty() => self.end(status),
            None if self.is_ending => self.end(0),
            _ => {}
        }
    }

    fn end(&mut self, status: u8) {
        let standby = self.standby.take().map(|standby| standby.child.pid);
        let retired = self.retired.iter().map(|(pid, _)| *pid);
        retired.chain(standby).for_each(|pid| signal(pid, Signal::SIGTERM));
        self.next = Next::End(status);
    }
}

/// A child inherits which signals are blocked. The keeper blocks those that it reads.
#[allow(unsafe_code, reason = "only a child itself can admit signals before it is executed")]
fn admit_signals(command: &mut Command) {
    let admit = || SigSet::empty().thread_set_mask().map_err(io::Error::from);
    // SAFETY: between fork and exec, it makes one call that is safe in a signal handler, and allocates
    // nothing.
    unsafe { command.pre_exec(admit) };
}

fn answer(keeper: &mut Server, requester: Option<(ClientId, u32)>, result: Result<(), String>) {
    match (requester, result) {
        (Some((client, tag)), result) => keeper.reply(client, tag, result),
        (None, Err(reason)) => log(&reason),
        (None, Ok(())) => {}
    }
}

/// The process may have ended already; it stays a child until it has been waited for, so this is no other.
fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

fn shown(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("has exited with status {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("was killed by {signal}"),
        other => format!("has ended: {other:?}"),
    }
}

fn exit_status(status: WaitStatus) -> u8 {
    match status {
        WaitStatus::Exited(_, code) => u8::try_from(code).unwrap_or(1),
        WaitStatus::Signaled(_, signal, _) => u8::try_from(128 + signal as i32).unwrap_or(1),
        _ => 1,
    }
}
