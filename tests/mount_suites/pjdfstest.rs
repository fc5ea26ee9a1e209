//! pjdfstest: conformance of the system calls to POSIX.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::kept_mount::KeptMount;
use crate::suite::{LIMIT, built, within_limit};
use crate::support::command::run;
use crate::support::fixture::Fixture;

/// Users that every Debian has; the second must not be the first's group.
const CONFIGURATION: &str = r#"
    [features]
    posix_fallocate = {}
    rename_ctime = {}
    utime_now = {}
    utimensat = {}

    [settings]
    naptime = 0.01
    allow_remount = REMOUNT

    [dummy_auth]
    entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Tests that do not run, and why.
const SKIPPED: [(&str, &str); 1] =
    [("link::link_count_max", "a file may have as many links as a number can count")];

/// Appears in the names of cases that need a read-only mount.
const READ_ONLY: &str = "erofs";

/// The suite remounts read-only by mount(8), which would look for a program for the file system
/// type: the kernel does it alone. A file that was just closed may keep it busy for a moment.
const MOUNT: &str = r#"#!/bin/sh
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    for try in 1 2 3 4 5 6 7 8 9; do
        mount -i "$@" 2>/dev/null && exit
        sleep 0.2
    done
    exec mount -i "$@"
"#;

#[test]
fn all_of_posix_on_redis() {
    within_limit(|| passes(&Fixture::redis()));
}

#[test]
fn all_of_posix_on_sqlite() {
    within_limit(|| passes(&Fixture::sqlite()));
}

#[test]
fn all_of_posix_on_tikv() {
    within_limit(|| passes(&Fixture::tikv()));
}

#[test]
fn all_of_posix_on_tikv_in_several_regions() {
    within_limit(|| passes(&Fixture::split_tikv()));
}

/// Between two kills of the server.
const KILL_PERIOD: Duration = Duration::from_secs(2);

#[test]
fn all_of_posix_while_the_server_is_killed_every_two_seconds() {
    within_limit(|| {
        let fixture = Fixture::redis();
        fixture.format(&["--enable-acl"]);
        let mount = KeptMount::start(&fixture, OPTIONS);
        make_tools(&fixture);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let killer = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    thread::sleep(KILL_PERIOD);
                    mount.kill_server();
                }
            });
            let outcomes = std::panic::catch_unwind(|| run_cases(&fixture, mount.path(), ""));
            ended.store(true, Ordering::Relaxed);
            killer.join().unwrap();
            let outcomes = outcomes.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let passed = outcomes.values().filter(|outcome| *outcome == "ok").count();
            assert!(passed > 300, "only {passed} cases passed");
        });
        println!("{} servers", mount.servers());
        assert!(mount.servers() > 3, "{}", mount.log());
        mount.unmount();
        fixture.check();
    });
}

/// Update directory times with every change; by default they are not, to avoid conflicts.
const OPTIONS: &[&str] = &["--enable-xattr", "--skip-dir-mtime", "0s"];

fn make_tools(fixture: &Fixture) {
    let tools = fixture.folder().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("mount"), MOUNT).unwrap();
    fs::set_permissions(tools.join("mount"), Permissions::from_mode(0o755)).unwrap();
}

fn passes(fixture: &Fixture) {
    fixture.format(&["--enable-acl"]);
    let mount = fixture.mount(OPTIONS);
    make_tools(fixture);
    // Cases of read-only mounts run separately: others leave files open for writing, which prevents
    // remounting.
    let mut outcomes = run_cases(fixture, mount.path(), "");
    outcomes.retain(|name, _| !name.contains(READ_ONLY));
    outcomes.extend(run_cases(fixture, mount.path(), READ_ONLY));
    let skipped: Vec<&str> = outcomes
        .iter()
        .filter(|(_, outcome)| *outcome == "skipped")
        .map(|(name, _)| name.as_str())
        .collect();
    let expected: Vec<&str> = SKIPPED.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, expected);
    let passed = outcomes.values().filter(|outcome| *outcome == "ok").count();
    assert_eq!(passed, outcomes.len() - expected.len());
    assert!(passed > 350, "only {passed} cases passed");
    drop(mount);
    fixture.check();
}

fn run_cases(fixture: &Fixture, mount: &Path, pattern: &str) -> BTreeMap<String, String> {
    let configuration = fixture.folder().join("pjdfstest.toml");
    let remount = (pattern == READ_ONLY).to_string();
    fs::write(&configuration, CONFIGURATION.replace("REMOUNT", &remount)).unwrap();
    let tools = fixture.folder().join("tools");
    let path = format!("{}:{}", tools.display(), env::var("PATH").unwrap());
    let mut command = Command::new(built("pjdfstest"));
    command.arg("-c").arg(&configuration).arg("-p").arg(mount).arg("-s").arg(&tools);
    command.env("NO_COLOR", "1").env("PATH", path);
    command.args((!pattern.is_empty()).then_some(pattern));
    let ran = run(command, LIMIT);
    let outcomes = outcomes(&ran.stdout);
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| *outcome == "FAILED").collect();
    assert!(failed.is_empty() && ran.status.success(), "failed: {failed:?}\n{ran}");
    outcomes
}

/// The word at the end of each case's line.
fn outcomes(said: &str) -> BTreeMap<String, String> {
    let cases = said.lines().filter_map(|line| {
        let (name, outcome) = line.split_once(char::is_whitespace)?;
        let outcome = outcome.trim();
        (name.contains("::") && !outcome.is_empty()).then(|| (name.to_owned(), outcome.to_owned()))
    });
    cases.collect()
}
