//! A keeper that starts its server.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use jfs::Error;
use jfs::keeper::KeeperEvent;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::fake_server::{FOLDER_VARIABLE, WORDS, behave};
use super::fixture::{PATIENCE, Process, connected, event, until};

struct Supervised {
    keeper: Process,
    folder: TempDir,
    socket: PathBuf,
}

/// One line of the servers' file: name, PID, what happened.
type Line = (String, i32, String);

impl Supervised {
    fn new(command: &mut Command, behaviour: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("keeper.sock");
        behave(folder.path(), "old", behaviour);
        let server = folder.path().join("old");
        symlink(std::env::current_exe().unwrap(), &server).unwrap();
        symlink(std::env::current_exe().unwrap(), folder.path().join("new")).unwrap();
        command.arg("--socket").arg(&socket).arg("--").arg(&server).args(WORDS);
        command.env(FOLDER_VARIABLE, folder.path()).stdout(std::process::Stdio::null());
        let command = std::mem::replace(command, Command::new("unused"));
        Self { keeper: Process::start(command, &folder.path().join("log")), folder, socket }
    }

    fn by_jfs_keeper(behaviour: &str) -> Self {
        Self::new(&mut Command::new(env!("CARGO_BIN_EXE_jfs-keeper")), behaviour)
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.folder.path().join("events")).unwrap_or_default();
        let parse = |line: &str| {
            let (name, rest) = line.split_once(' ')?;
            let (pid, what) = rest.split_once(' ')?;
            Some((name.to_owned(), pid.parse().ok()?, what.to_owned()))
        };
        text.lines().filter_map(parse).collect()
    }

    /// Waits for the `n`th line of this kind, and returns its PID and text.
    #[track_caller]
    fn wait(&self, name: &str, what: &str, n: usize) -> (i32, String) {
        until(what, || {
            let lines = self.lines().into_iter();
            let mut lines = lines.filter(|(who, _, text)| who == name && text.starts_with(what));
            lines.nth(n).map(|(_, pid, text)| (pid, text))
        })
    }

    fn upgrade(&self, file: &str) -> Result<(), Error> {
        let (client, _events) = connected(&self.socket);
        let program = self.folder.path().join(file);
        client.upgrade(program.to_str().unwrap(), PATIENCE * 3)
    }
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn is_running(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

#[test]
fn a_killed_server_is_restarted_and_finds_what_the_one_before_had() {
    let supervised = Supervised::by_jfs_keeper("serve");
    let (first, text) = supervised.wait("old", "serves", 0);
    assert_eq!(text, format!("serves what was mounted by {first}"));
    for n in 1..4 {
        let (pid, _) = supervised.wait("old", "serves", n - 1);
        send(pid, Signal::SIGKILL);
        let (next, text) = supervised.wait("old", "serves", n);
        assert_ne!(next, pid);
        assert_eq!(text, format!("serves what was mounted by {first}"));
    }
}

#[test]
fn a_server_that_fails_is_restarted() {
    let supervised = Supervised::by_jfs_keeper("serve");
    supervised.wait("old", "serves", 0);
    behave(supervised.folder.path(), "old", "fail");
    supervised.keeper.logged("has exited with status 9");
    behave(supervised.folder.path(), "old", "serve");
    supervised.wait("old", "serves", 1);
}

#[test]
fn a_server_that_ends_by_itself_ends_the_keeper() {
    let mut supervised = Supervised::by_jfs_keeper("serve");
    supervised.wait("old", "serves", 0);
    behave(supervised.folder.path(), "old", "exit");
    assert!(supervised.keeper.ended().success());
    assert!(!supervised.socket.exists());
    assert_eq!(supervised.lines().iter().filter(|(_, _, what)| what == "started").count(), 1);
}

/// Nothing is mounted that another try would save, and its error is for the caller.
#[test]
fn a_server_that_fails_to_mount_ends_the_keeper_with_its_status() {
    for (behaviour, status) in [("die", 7), ("mount nothing", 12)] {
        let mut supervised = Supervised::by_jfs_keeper(behaviour);
        assert_eq!(supervised.keeper.ended().code(), Some(status));
        assert_eq!(supervised.lines().len(), 1, "{behaviour}");
    }
}

#[test]
fn a_server_that_never_serves_is_given_up() {
    let mut supervised = Supervised::by_jfs_keeper("crash");
    assert_eq!(supervised.keeper.ended().code(), Some(128 + 9));
    assert_eq!(supervised.lines().len(), 5);
    supervised.keeper.logged("giving up: the server has died 5 times without serving");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-keeper"));
    command.arg("--socket").arg(folder.path().join("k.sock")).args(["--", "/none/such"]);
    let mut keeper = Process::start(command, &folder.path().join("log"));
    assert_eq!(keeper.ended().code(), Some(1));
    keeper.logged("/none/such: cannot be started");
}

#[test]
fn sigterm_is_passed_on_and_ends_both() {
    let mut supervised = Supervised::by_jfs_keeper("serve");
    let (server, _) = supervised.wait("old", "serves", 0);
    supervised.keeper.signal(Signal::SIGTERM);
    assert_eq!(supervised.keeper.ended().code(), Some(128 + 15));
    assert!(!is_running(server));
}

#[test]
fn an_upgrade_replaces_the_server_and_its_crash_restarts_the_new_program() {
    let supervised = Supervised::by_jfs_keeper("serve");
    let (old, _) = supervised.wait("old", "serves", 0);
    behave(supervised.folder.path(), "new", "serve");
    supervised.upgrade("new").unwrap();
    let (new, text) = supervised.wait("new", "serves", 0);
    assert_eq!(text, format!("serves what was mounted by {old}"));
    until("the old server ends", || (!is_running(old)).then_some(()));
    send(new, Signal::SIGKILL);
    let (_, text) = supervised.wait("new", "serves", 1);
    assert_eq!(text, format!("serves what was mounted by {old}"));
}

#[test]
fn sighup_replaces_the_server_by_the_same_file() {
    let supervised = Supervised::by_jfs_keeper("serve");
    let (old, _) = supervised.wait("old", "serves", 0);
    supervised.keeper.signal(Signal::SIGHUP);
    let (new, _) = supervised.wait("old", "serves", 1);
    assert_ne!(old, new);
}

#[test]
fn an_upgrade_that_fails_tells_why_and_leaves_the_server_serving() {
    let supervised = Supervised::by_jfs_keeper("serve");
    let (old, _) = supervised.wait("old", "serves", 0);
    let refused = |behaviour: &str, file: &str, why: &str| {
        behave(supervised.folder.path(), "new", behaviour);
        let error = supervised.upgrade(file).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(file), "{error}");
        assert!(is_running(old));
    };
    refused("die", "new", "exited with status 7");
    refused("decline", "new", "no store can be opened");
    refused("leave", "new", "left the keeper");
    refused("serve", "none", "cannot be started");
    let names: Vec<String> = connected(&supervised.socket).0.names().unwrap();
    assert_eq!(names, ["mount"]);
    assert!(supervised.lines().iter().all(|(_, _, what)| what != "yielded"));
    // And it is restarted as before.
    send(old, Signal::SIGKILL);
    supervised.wait("old", "serves", 1);
}

#[test]
fn a_server_that_dies_while_a_standby_fails_is_restarted() {
    let supervised = Supervised::by_jfs_keeper("serve");
    let (old, _) = supervised.wait("old", "serves", 0);
    behave(supervised.folder.path(), "new", "leave");
    let upgrade = std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| supervised.upgrade("new"));
        supervised.wait("new", "started", 0);
        send(old, Signal::SIGKILL);
        upgrade.join().unwrap()
    });
    upgrade.unwrap_err();
    supervised.wait("old", "serves", 1);
}

#[test]
fn a_spare_serves_again_when_the_new_program_keeps_failing() {
    let supervised = Supervised::by_jfs_keeper("spare");
    let (old, _) = supervised.wait("old", "serves", 0);
    behave(supervised.folder.path(), "new", "serve");
    supervised.upgrade("new").unwrap();
    let (new, _) = supervised.wait("new", "serves", 0);
    behave(supervised.folder.path(), "new", "die");
    send(new, Signal::SIGKILL);
    let (again, _) = supervised.wait("old", "serves", 1);
    assert_eq!(again, old);
    supervised.keeper.logged("serves again");
    // From now on it is the server: it is restarted, and not the one that failed.
    behave(supervised.folder.path(), "old", "serve");
    send(old, Signal::SIGKILL);
    supervised.wait("old", "serves", 2);
}

#[test]
fn a_keeper_of_the_same_file_follows_its_server_to_the_new_one() {
    // A test does not run in the main thread, which has to leave signals to the keeper as well.
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        set.add(signal);
    }
    let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "fake_server::keep", "--nocapture", "--"]);
    let mut supervised = Supervised::new(&mut command, "serve");
    before.thread_set_mask().unwrap();
    let (first, _) = supervised.wait("old", "serves", 0);
    let (client, mut events) = connected(&supervised.socket);
    behave(supervised.folder.path(), "new", "serve");
    supervised.upgrade("new").unwrap();
    supervised.keeper.logged("continuing with 1 names");
    // Connections, names and children are those from before.
    assert_eq!(client.names().unwrap(), ["mount"]);
    let (new, _) = supervised.wait("new", "serves", 0);
    send(new, Signal::SIGKILL);
    let (again, text) = supervised.wait("new", "serves", 1);
    assert_eq!(text, format!("serves what was mounted by {first}"));
    assert_ne!(again, new);
    // And once more, by the program that has taken over.
    behave(supervised.folder.path(), "old", "serve");
    supervised.upgrade("old").unwrap();
    supervised.wait("old", "serves", 1);
    behave(supervised.folder.path(), "old", "exit");
    assert!(supervised.keeper.ended().success());
    assert_eq!(event(&mut events), KeeperEvent::Lost);
}

#[test]
fn the_hidden_subcommand_is_the_same_keeper_and_upgrade_finds_it() {
    let program = env!("CARGO_BIN_EXE_jfs-mount");
    let mut command = Command::new(program);
    let supervised = Supervised::new(command.arg("keeper"), "serve");
    let (old, _) = supervised.wait("old", "serves", 0);
    behave(supervised.folder.path(), "new", "serve");
    let mut command = Command::new(program);
    command.args(["upgrade", "--socket"]).arg(&supervised.socket);
    command.args(["--binary", "/none/such"]).arg(supervised.folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("/none/such"), "{text}");
    let mut command = Command::new(program);
    command.args(["upgrade", "--socket"]).arg(&supervised.socket).arg(supervised.folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (new, text) = supervised.wait("old", "serves", 1);
    assert_ne!(old, new);
    assert_eq!(text, format!("serves what was mounted by {old}"));
    assert!(connected(&supervised.socket).0.names().unwrap() == ["mount"]);
}

#[test]
fn upgrade_of_something_without_a_keeper_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-mount"));
    let output = command.arg("upgrade").arg(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("no mount of this user"), "{text}");
}
