//! The program: arguments, signals, and the loop that joins the server and the supervisor.
//!
//! `jfs-keeper` and the hidden subcommand `jfs-mount keeper` are this. It parses its few arguments itself
//! and has no subscriber for logs: that keeps it small.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::reexec;
use super::server::{Notice, Server, Timing, log};
use super::supervise::{Next, Prepare, Program, Supervisor};
use crate::descriptors;

const USAGE: &str = "usage: --socket PATH [--orphan-timeout SECONDS] [-- PROGRAM ARGUMENT...]

Holds descriptors of mounts for the process that serves them. With a PROGRAM, also starts it,
restarts it when it dies, and ends when it ends. SIGHUP upgrades: the program, or the keeper itself.";

const USAGE_STATUS: u8 = 2;

/// The arguments of a keeper.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    socket: PathBuf,
    orphan_timeout: Duration,
    resume: bool,
    program: Option<Program>,
}

#[derive(Debug, PartialEq, Eq)]
enum Action {
    Run(Arguments),
    /// Says whether a table of this format can be read.
    CanResume(String),
    Help,
    Version,
}

/// Runs a keeper until it ends, and returns its exit status. `words` are the arguments of the process; the first `own` of them name
/// the program, the rest is for the keeper.
pub fn main(words: &[OsString], own: usize, prepare: Prepare) -> u8 {
    let (name, rest) = words.split_at(own.min(words.len()));
    let arguments = match parse(rest) {
        Ok(Action::Run(arguments)) => arguments,
        Ok(Action::CanResume(format)) => {
            return u8::from(format != reexec::FORMAT.to_string());
        }
        Ok(Action::Help) => {
            println!("{USAGE}");
            return 0;
        }
        Ok(Action::Version) => {
            println!("jfs-keeper {}", env!("CARGO_PKG_VERSION"));
            return 0;
        }
        Err(error) => {
            log(&format!("{error}\n{USAGE}"));
            return USAGE_STATUS;
        }
    };
    match Keeper::new(name, arguments, prepare).and_then(Keeper::run) {
        Ok(status) => status,
        Err(error) => {
            log(&error.to_string());
            1
        }
    }
}

struct Keeper {
    server: Server,
    supervisor: Option<Supervisor>,
    signals: SignalFd,
    /// The words that name the program, for the next run of it.
    name: Vec<OsString>,
    orphan_timeout: Duration,
    /// The file of this program.
    file: PathBuf,
    /// The server was started from that file too.
    is_one_file: bool,
}

impl Keeper {
    fn new(name: &[OsString], arguments: Arguments, prepare: Prepare) -> io::Result<Self> {
        let signals = signals()?;
        descriptors::raise();
        // Found now: later, the link of a file that has been replaced leads nowhere.
        let file = std::env::current_exe()?;
        let timing = Timing { orphan_timeout: arguments.orphan_timeout, ..Timing::default() };
        let (server, supervisor) = if arguments.resume {
            let (server, saved) = reexec::resume(timing)?;
            let path = server.socket_path().to_owned();
            let supervisor = saved.map(|saved| Supervisor::restored(saved, &path, prepare));
            log(&format!("continuing with {} names", server.held()));
            (server, supervisor)
        } else {
            let server = Server::new(&arguments.socket, timing)?;
            log(&format!("listening at {}", arguments.socket.display()));
            let new = |program| Supervisor::new(program, &arguments.socket, prepare);
            (server, arguments.program.map(new))
        };
        let served = supervisor.as_ref().and_then(|s| s.program().canonicalize().ok());
        let is_one_file = served.is_some_and(|served| served == file);
        let (name, orphan_timeout) = (name.to_vec(), arguments.orphan_timeout);
        Ok(Self { server, supervisor, signals, name, orphan_timeout, file, is_one_file })
    }

    /// Returns the exit status.
    fn run(mut self) -> io::Result<u8> {
        // What has happened since the program before was replaced.
        self.reap();
        loop {
            if let Some(supervisor) = &mut self.supervisor {
                supervisor.tick(&mut self.server);
            }
            let until = self.supervisor.as_ref().and_then(Supervisor::next_deadline);
            let is_signalled = self.server.turn(self.signals.as_fd(), until)?;
            for notice in self.server.notices() {
                self.notice(notice);
            }
            if is_signalled && let Some(status) = self.handle_signals()? {
                self.server.close();
                return Ok(status);
            }
            match self.supervisor.as_mut().map_or(Next::GoOn, Supervisor::take_next) {
                Next::GoOn => {}
                Next::Upgraded => self.follow_upgrade(),
                Next::End(status) => {
                    self.server.close();
                    return Ok(status);
                }
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        match (&mut self.supervisor, notice) {
            (Some(supervisor), notice) => supervisor.notice(&mut self.server, notice),
            (None, Notice::Upgrade { client, tag, .. }) => {
                let reason = "this keeper does not start its server".to_owned();
                self.server.reply(client, tag, Err(reason));
            }
            (None, _) => {}
        }
    }

    /// Returns an exit status if a signal ends the keeper.
    fn handle_signals(&mut self) -> io::Result<Option<u8>> {
        while let Some(info) = self.signals.read_signal()? {
            let Some(signal) = i32::try_from(info.ssi_signo).ok().and_then(|n| n.try_into().ok())
            else {
                continue;
            };
            match (signal, &mut self.supervisor) {
                (Signal::SIGCHLD, _) => self.reap(),
                (Signal::SIGHUP, Some(supervisor)) => {
                    supervisor.upgrade(&mut self.server, None, "");
                }
                (Signal::SIGHUP, None) => self.replace(&self.file.clone()),
                (signal, Some(supervisor)) => supervisor.stop(signal),
                (_, None) => return Ok(Some(0)),
            }
        }
        Ok(None)
    }

    fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(status) => {
                    if let Some(supervisor) = &mut self.supervisor {
                        supervisor.ended(&mut self.server, status);
                    }
                }
            }
        }
    }

    /// A server that was of the same file as the keeper has been replaced: so is the keeper.
    fn follow_upgrade(&mut self) {
        let Some(supervisor) = &self.supervisor else { return };
        let program = supervisor.program().to_owned();
        if self.is_one_file {
            self.replace(&program);
        }
    }

    /// Replaces the program of this process. If that fails, it goes on as it is.
    fn replace(&mut self, program: &Path) {
        let subcommand = self.name.get(1..).unwrap_or_default();
        let mut words = self.name.clone();
        words.extend(["--socket".into(), self.server.socket_path().into()]);
        words.extend(["--orphan-timeout".into(), self.orphan_timeout.as_secs().to_string().into()]);
        words.push("--resume".into());
        let saved = self.supervisor.as_ref().map(Supervisor::save);
        let error = match reexec::check(program, subcommand) {
            Ok(()) => reexec::replace(&self.server, saved, program, &words),
            Err(error) => error,
        };
        log(&format!("the keeper stays as it is: {error}"));
    }
}

/// Blocks the signals that the keeper handles, and returns where they are read.
fn signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn parse(words: &[OsString]) -> Result<Action, String> {
    let (mut socket, mut orphan_timeout, mut resume, mut program) = (None, 0, false, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (key, value) = match word.to_str().and_then(|word| word.split_once('=')) {
            Some((key, value)) if key.starts_with("--") => (key, Some(OsString::from(value))),
            _ => (word.to_str().unwrap_or_default(), None),
        };
        let mut value = || {
            let missing = || format!("{key} needs a value");
            value.clone().or_else(|| words.next().cloned()).ok_or_else(missing)
        };
        match key {
            "--socket" => socket = Some(PathBuf::from(value()?)),
            "--orphan-timeout" => {
                let text = value()?;
                let seconds = text.to_str().and_then(|text| text.parse().ok());
                orphan_timeout = seconds.ok_or_else(|| {
                    format!("--orphan-timeout: not a number of seconds: {}", text.display())
                })?;
            }
            "--can-resume" => {
                return Ok(Action::CanResume(value()?.to_string_lossy().into_owned()));
            }
            "--resume" => resume = true,
            "--help" | "-h" => return Ok(Action::Help),
            "--version" | "-V" => return Ok(Action::Version),
            "--" => {
                let rest: Vec<OsString> = words.by_ref().cloned().collect();
                let (file, words) = rest.split_first().ok_or("no program after --")?;
                program = Some(Program { file: file.clone(), words: words.to_vec() });
            }
            _ => return Err(format!("unknown argument {}", word.display())),
        }
    }
    let socket = socket.ok_or("--socket is missing")?;
    let orphan_timeout = Duration::from_secs(orphan_timeout);
    Ok(Action::Run(Arguments { socket, orphan_timeout, resume, program }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Action, String> {
        parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_understood() {
        let Ok(Action::Run(plain)) = parsed("--socket /run/k.sock") else { panic!() };
        assert_eq!(plain.socket, Path::new("/run/k.sock"));
        assert!(plain.orphan_timeout.is_zero() && !plain.resume && plain.program.is_none());
        let text = "--socket=/k --orphan-timeout=60 --resume -- /bin/jfs mount --socket x";
        let Ok(Action::Run(full)) = parsed(text) else { panic!() };
        assert_eq!((full.orphan_timeout.as_secs(), full.resume), (60, true));
        let words = ["mount", "--socket", "x"].map(OsString::from).to_vec();
        assert_eq!(full.program, Some(Program { file: "/bin/jfs".into(), words }));
    }

    #[test]
    fn a_wrong_argument_is_named() {
        assert!(parsed("--sockt x").unwrap_err().contains("--sockt"));
        assert!(parsed("--orphan-timeout x --socket y").unwrap_err().contains("--orphan-timeout"));
        assert!(parsed("--socket").unwrap_err().contains("--socket"));
        assert!(parsed("").unwrap_err().contains("--socket"));
        assert!(parsed("--socket x --").unwrap_err().contains("program"));
    }
}
