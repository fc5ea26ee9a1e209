//! Removing a tree, interrupted by the end of the mount or of the tool.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;

use super::fixture::names;
use super::support::command::{poll, run, wait};
use super::support::fixture::{Fixture, PATIENCE, eventually, ours, signal};
use crate::on_both;

/// Directories of the tree: removed one at a time, they take a while.
const DIRS: usize = 600;

on_both! {
    ending_the_mount_stops_a_removal_cleanly,
    an_interrupted_removal_stops_and_can_be_repeated,
}

fn make_tree(top: &Path) {
    for number in 0..DIRS {
        let dir = top.join(format!("d{number}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("f"), "text").unwrap();
    }
    fs::hard_link(top.join("d0/f"), top.parent().unwrap().join("kept")).unwrap();
}

fn remove(top: &Path) -> Child {
    let mut command = ours();
    command.args(["rmr", "-p", "1"]).arg(top);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits until a removal has started.
fn begun(top: &Path) {
    eventually("the removal begins", || fs::read_dir(top).unwrap().count() < DIRS);
}

fn removed_for_good(fixture: &Fixture, top: &Path) {
    let mut command = ours();
    command.arg("rmr").arg(top);
    run(command, PATIENCE).ok();
    let root = top.parent().unwrap();
    assert_eq!(names(root), ["kept"]);
    assert_eq!(fs::metadata(root.join("kept")).unwrap().nlink(), 1);
    assert_eq!(fs::read(root.join("kept")).unwrap(), b"text");
    assert!(!fixture.go.status()["Sessions"].as_array().unwrap().is_empty());
}

fn sessions(fixture: &Fixture) -> usize {
    fixture.go.status()["Sessions"].as_array().map_or(0, Vec::len)
}

fn ending_the_mount_stops_a_removal_cleanly(fixture: &Fixture) {
    let mount = fixture.start();
    let top = mount.at("top");
    make_tree(&top);
    let mut removal = remove(&top);
    begun(&top);
    mount.terminate();
    let ended = wait(&mut removal, PATIENCE).expect("the tool ends with the mount");
    assert!(!ended.success(), "it was not removed");
    assert_eq!(sessions(fixture), 0);
    fixture.go.fsck();

    let mount = fixture.mount(&[]);
    let top = mount.at("top");
    let left = fs::read_dir(&top).unwrap().count();
    assert!((1..DIRS).contains(&left), "{left} of {DIRS} are left");
    removed_for_good(fixture, &top);
    mount.unmount();
    fixture.go.fsck();
}

fn an_interrupted_removal_stops_and_can_be_repeated(fixture: &Fixture) {
    let mount = fixture.start();
    let top = mount.at("top");
    make_tree(&top);
    let mut removal = remove(&top);
    begun(&top);
    signal(removal.id(), Signal::SIGINT);
    let ended = wait(&mut removal, PATIENCE).expect("the tool ends by the signal");
    assert!(!ended.success());
    // A step that was started is completed, and none after it.
    let count = || fs::read_dir(&top).unwrap().count();
    let mut last = count();
    assert!(poll(PATIENCE, || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let before = std::mem::replace(&mut last, count());
        before == last
    }));
    assert!((1..DIRS).contains(&last), "{last} of {DIRS} are left");
    fs::write(top.join("still"), "text").unwrap();
    removed_for_good(fixture, &top);
    mount.unmount();
    fixture.go.fsck();
}
