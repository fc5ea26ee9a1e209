//! Runs that are killed or interrupted: the next one finishes.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::damage::Metadata;
use crate::numbers::{BOTH, Tool, same_fsck, same_gc};
use crate::on_both;
use crate::scene::{leak, objects, write_by_both};
use crate::support::command::{poll, wait};
use crate::support::fixture::{Client, Fixture, PATIENCE, signal};

on_both! {
    a_killed_gc_is_finished_by_the_next,
    a_killed_repair_is_finished_by_the_next,
    an_interrupted_gc_closes_its_session,
}

const LEAKED: u32 = 3000;

/// Starts the command and sends the signal once `begun`. Returns whether that ended it.
fn cut(
    fixture: &Fixture,
    action: &str,
    options: &[&str],
    by: Signal,
    begun: impl Fn() -> bool,
) -> bool {
    let mut command = Tool::Ours.command(fixture, action, options);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    poll(Duration::from_secs(20), || begun() || child.try_wait().unwrap().is_some());
    let was_running = child.try_wait().unwrap().is_none();
    if was_running {
        signal(child.id(), by);
    }
    let status = wait(&mut child, PATIENCE).unwrap();
    was_running && !status.success()
}

fn fill(fixture: &Fixture) -> Vec<std::path::PathBuf> {
    fixture.format(&[]);
    write_by_both(fixture);
    let kept = objects(fixture);
    for number in 0..LEAKED {
        leak(fixture, 900_000_000 + u64::from(number), 10);
    }
    kept
}

fn a_killed_gc_is_finished_by_the_next(fixture: &Fixture) {
    let kept = fill(fixture);
    let begun = || objects(fixture).len() < kept.len() + LEAKED as usize;
    assert!(cut(fixture, "gc", &["--delete", "-p", "1"], Signal::SIGKILL, begun));
    let left = objects(fixture).len();
    assert!(left > kept.len(), "nothing was left to delete");
    Tool::Ours.run(fixture, "gc", &["--delete"]).ok();
    assert_eq!(objects(fixture), kept);
    assert!(same_fsck(fixture, &[]).is_clean);
    assert_eq!(same_gc(fixture).count("leaked"), 0);
}

fn an_interrupted_gc_closes_its_session(fixture: &Fixture) {
    let kept = fill(fixture);
    let begun = || objects(fixture).len() < kept.len() + LEAKED as usize;
    assert!(cut(fixture, "gc", &["--delete", "-p", "1"], Signal::SIGINT, begun));
    assert!(objects(fixture).len() > kept.len(), "it was not interrupted");
    assert_eq!(Metadata::of(fixture).left_behind(), (0, 0));
    Tool::Go.gc(fixture, &["--delete"]);
    assert_eq!(objects(fixture), kept);
}

fn a_killed_repair_is_finished_by_the_next(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount_by(Client::Ours, &[]);
    for number in 0..300 {
        fs::create_dir_all(mount.at(format!("d{number}/e"))).unwrap();
    }
    mount.unmount();
    let metadata = Metadata::of(fixture);
    let dirs: Vec<_> = (0..300).map(|number| metadata.ino(&format!("/d{number}"))).collect();
    for dir in &dirs {
        metadata.change_attr(*dir, |attr| attr.nlink = 9);
    }
    let wrong = || dirs.iter().filter(|dir| metadata.attr(**dir).unwrap().nlink == 9).count();
    let repair = ["--path", "/", "-r", "--repair", "--sync-dir-stat"];
    cut(fixture, "fsck", &repair, Signal::SIGKILL, || wrong() < dirs.len());
    Tool::Ours.run(fixture, "fsck", &repair).ok();
    assert_eq!(wrong(), 0);
    for tool in BOTH {
        tool.run(fixture, "fsck", &["--path", "/", "-r", "--sync-dir-stat"]).ok();
    }
}
