//! The program `jfs-keeper`.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use jfs::keeper::KeeperEvent;
use nix::sys::signal::Signal;

use super::fixture::{Process, connected, event, held, memory, put};

const PROGRAM: &str = env!("CARGO_BIN_EXE_jfs-keeper");

fn keeper(folder: &tempfile::TempDir) -> (Process, std::path::PathBuf) {
    let path = folder.path().join("keeper.sock");
    let mut command = Command::new(PROGRAM);
    command.arg("--socket").arg(&path);
    (Process::start(command, &folder.path().join("log")), path)
}

#[test]
fn sigterm_ends_it_and_removes_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, path) = keeper(&folder);
    let (_client, mut events) = connected(&path);
    keeper.signal(Signal::SIGTERM);
    assert!(keeper.ended().success());
    assert_eq!(event(&mut events), KeeperEvent::Lost);
    assert!(!path.exists());
}

#[test]
fn a_killed_keeper_is_followed_by_another_at_the_same_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, path) = keeper(&folder);
    let (_client, mut events) = connected(&path);
    first.signal(Signal::SIGKILL);
    first.ended();
    assert_eq!(event(&mut events), KeeperEvent::Lost);
    let (_second, path) = keeper(&folder);
    connected(&path).0.names().unwrap();
}

#[test]
fn names_descriptors_connections_and_owner_survive_an_upgrade_of_the_keeper() {
    let folder = tempfile::tempdir().unwrap();
    let (keeper, path) = keeper(&folder);
    let (owner, mut events) = connected(&path);
    owner.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yours);
    let file = memory("many");
    for n in 0..200 {
        owner.put(&format!("pv-{n}"), &[file.as_fd(); 3]).unwrap();
    }
    put(&owner, "one", "text");
    let (asker, mut asker_events) = connected(&path);
    asker.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yield);
    for _ in 0..3 {
        let before = keeper.log().matches("continuing with 201 names").count();
        keeper.signal(Signal::SIGHUP);
        super::fixture::until("it continues", || {
            (keeper.log().matches("continuing with 201 names").count() > before).then_some(())
        });
        assert_eq!(owner.names().unwrap().len(), 201);
    }
    assert_eq!(held(&owner, "one"), ["text"]);
    assert_eq!(held(&owner, "pv-7"), ["many"; 3]);
    put(&owner, "one", "after");
    // The asker still waits, and the owner is still asked to yield.
    owner.yielded().unwrap();
    assert_eq!(event(&mut asker_events), KeeperEvent::Yours);
    assert_eq!(held(&asker, "one"), ["after"]);
    // The socket is the same, and so is its lock.
    connected(&path).0.names().unwrap();
    let mut second = Command::new(PROGRAM);
    second.arg("--socket").arg(&path).stdin(Stdio::null());
    let output = second.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("another keeper"), "{text}");
}

#[test]
fn a_file_that_does_not_continue_the_keeper_does_not_replace_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("jfs-keeper");
    std::fs::copy(PROGRAM, &program).unwrap();
    let path = folder.path().join("keeper.sock");
    let mut command = Command::new(&program);
    command.arg("--socket").arg(&path);
    let keeper = Process::start(command, &folder.path().join("log"));
    let (owner, mut events) = connected(&path);
    owner.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yours);
    put(&owner, "a", "text");
    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/false", &program).unwrap();
    keeper.signal(Signal::SIGHUP);
    keeper.logged("the keeper stays as it is");
    assert_eq!(held(&owner, "a"), ["text"]);
    std::fs::remove_file(&program).unwrap();
    keeper.signal(Signal::SIGHUP);
    super::fixture::until("it is refused again", || {
        (keeper.log().matches("the keeper stays as it is").count() == 2).then_some(())
    });
    assert_eq!(held(&owner, "a"), ["text"]);
}

#[test]
fn a_keeper_without_descriptors_left_refuses_more_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper.sock");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" --socket \"$1\"", PROGRAM]).arg(&path);
    let keeper = Process::start(command, &folder.path().join("log"));
    let (owner, mut events) = connected(&path);
    owner.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yours);
    let file = memory("text");
    let names: Vec<String> = (10..40).map(|n| format!("pv-{n}")).collect();
    let full = names.iter().position(|name| owner.put(name, &[file.as_fd(); 4]).is_err()).unwrap();
    let error = owner.put(&names[full], &[file.as_fd(); 4]).unwrap_err().to_string();
    assert!(error.contains("too many open files"), "{error}");
    assert_eq!(owner.names().unwrap(), names[..full]);
    assert_eq!(held(&owner, &names[full - 1]), ["text"; 4]);
    // Still the owner, who can make room.
    owner.remove(&names[0]).unwrap();
    owner.put(&names[full], &[file.as_fd(); 4]).unwrap();
    // An upgrade that needs more than there is does not happen.
    keeper.signal(Signal::SIGHUP);
    super::fixture::until("it has tried", || {
        let log = keeper.log();
        (log.contains("stays as it is") || log.contains("continuing with")).then_some(())
    });
    assert_eq!(owner.names().unwrap(), names[1..=full]);
    assert_eq!(held(&owner, &names[full]), ["text"; 4]);
}

#[test]
fn a_process_of_another_user_is_refused_even_if_it_reaches_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (keeper, path) = keeper(&folder);
    connected(&path);
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(folder.path(), 0o755);
    open(&path, 0o666);
    let program = folder.path().join("jfs-mount");
    std::fs::copy(env!("CARGO_BIN_EXE_jfs-mount"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["upgrade", "--socket"]).arg(&path).arg("/").uid(65534).gid(65534);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // Whether it hears of its end when it reads or when it writes is a matter of timing.
    let is_cut =
        ["the connection has ended", "Broken pipe"].iter().any(|cause| text.contains(cause));
    assert!(!output.status.success() && is_cut, "{text}");
    keeper.logged("of user 65534");
    connected(&path).0.names().unwrap();
}

#[test]
fn wrong_arguments_are_named() {
    let output = Command::new(PROGRAM).args(["--sokcet", "x"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("--sokcet"), "{text}");
}
