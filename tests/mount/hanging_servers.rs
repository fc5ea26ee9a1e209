//! Servers that accept requests and never reply: a signal frees processes that wait for them.
//!
//! Only other processes access the mount while its servers hang.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fixture::{MIB, assert_same, bytes};
use crate::on_both;
use crate::process::Process;
use crate::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use crate::support::fixture::{Fixture, Mounted, eventually, signal};
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, within};

/// The signals that end a process.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL];

on_both! {
    a_signal_frees_a_reader_of_a_hanging_bucket,
    other_files_work_while_a_bucket_hangs,
    regression_handled_signals_interrupt_nothing,
}

fn a_signal_frees_a_reader_of_a_hanging_bucket(fixture: &Fixture) {
    let (server, mount, content) = with_a_cold_file(fixture);
    server.hang(true);
    server.seen();
    for end in ENDS {
        let mut reader = Process::start("cat", &[mount.at("f").to_str().unwrap()]);
        // Only of the first: the next ones share its request.
        if end == ENDS[0] {
            eventually("the bucket is asked", || !server.seen().is_empty());
        }
        reader.blocks();
        reader.signal(end);
        assert!(!reader.finish(), "{end}");
    }
    server.hang(false);
    assert_same(&fs::read(mount.at("f")).unwrap(), &content);
}

fn other_files_work_while_a_bucket_hangs(fixture: &Fixture) {
    let (server, mount, content) = with_a_cold_file(fixture);
    server.hang(true);
    let path = mount.at("f");
    let mut readers: Vec<Process> =
        (0..8).map(|_| Process::start("cat", &[path.to_str().unwrap()])).collect();
    for reader in &mut readers {
        reader.blocks();
    }
    let script = "cd \"$0\" && mkdir d && touch d/g && mv d/g d/h && stat f && ls -l d && rm -r d";
    let point = mount.path().to_str().unwrap();
    assert!(Process::start("sh", &["-c", script, point]).finish());
    drop(readers);
    server.hang(false);
    assert_same(&fs::read(&path).unwrap(), &content);
}

/// Timers, children and the like: no program expects EINTR from mkdir(2).
fn regression_handled_signals_interrupt_nothing(fixture: &Fixture) {
    let mount = fixture.start();
    let point = mount.path().to_str().unwrap();
    // The shell waits in the system call of one process while its trap is due.
    let script = r#"
        cd "$0"
        trap : ALRM USR1 CHLD WINCH
        me=$$
        (while kill -ALRM $me && kill -USR1 $me && kill -WINCH $me; do :; done) 2>/dev/null &
        bomb=$!
        n=0
        while [ $n -lt 300 ]; do
            # Built into the shell: the process that gets the signals makes the calls.
            : >"f$n" || exit 1
            [ -e "f$n" ] || exit 2
            cd . || exit 3
            n=$((n + 1))
        done
        kill $bomb
        ls | wc -l
    "#;
    let mut shell = Process::start("sh", &["-c", script, point]);
    shell.says("300");
    assert!(shell.finish());
}

#[test]
fn a_signal_frees_a_caller_of_a_hanging_redis() {
    within(MOUNTED, || {
        let redis = RedisServer::start();
        let fixture = Fixture::at(&redis.url(0));
        let mount = fixture.start();
        fs::create_dir(mount.at("d")).unwrap();
        fs::write(mount.at("d/f"), "text").unwrap();
        let server = redis.pid();
        signal(server, Signal::SIGSTOP);
        // The kernel's own cache expires after a second.
        thread::sleep(Duration::from_millis(1500));
        let path = mount.at("d/f");
        let path = path.to_str().unwrap();
        for (program, end) in
            [("stat", Signal::SIGINT), ("cat", Signal::SIGTERM), ("rm", Signal::SIGKILL)]
        {
            let mut process = Process::start(program, &[path]);
            process.blocks();
            process.signal(end);
            assert!(!process.finish(), "{program}");
        }
        signal(server, Signal::SIGCONT);
        let look =
            ["-c", "cat \"$0\"/d/* >/dev/null; mkdir \"$0\"/e", mount.path().to_str().unwrap()];
        assert!(Process::start("sh", &look).finish());
    });
}

/// Creates a volume in a bucket on its own server, with a file `f` that no cache holds.
fn with_a_cold_file(fixture: &Fixture) -> (S3Server, Mounted, Vec<u8>) {
    let server = S3Server::start();
    let bucket = server.bucket("bucket");
    let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    let place = ["volume", "--storage", "s3", "--bucket", &bucket];
    fixture.tool("format", &[&place[..], &keys, &["--trash-days", "0"]].concat()).ok();
    let content = bytes(1, MIB);
    let mount = fixture.mount(&[]);
    fs::write(mount.at("f"), &content).unwrap();
    drop(mount);
    // With another cache.
    let mount = fixture.mount(&["--get-timeout", "600"]);
    assert_eq!(fs::metadata(mount.at("f")).unwrap().len(), MIB);
    (server, mount, content)
}
