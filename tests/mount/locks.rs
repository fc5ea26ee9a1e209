//! Locks of all kinds: on one mount, and on two mounts by either client.

use std::fs::{File, TryLockError};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::fixture::open;
use crate::on_both;
use crate::process::{Kind, Process, in_the_way, of_file, posix};
use crate::support::fixture::{Client, Fixture, eventually};

on_both! {
    flocks_exclude_each_other,
    both_kinds_of_locks_are_independent,
    ranges_exclude_only_where_they_overlap,
    a_range_can_be_freed_in_the_middle,
    the_conflicting_lock_is_reported,
    locks_of_an_open_file_are_its_own,
    closing_releases_locks,
    a_lock_is_free_right_after_a_close,
    the_end_of_a_process_releases_its_locks,
    a_signal_ends_the_wait_for_a_flock,
    a_signal_ends_the_wait_for_a_range,
    a_waiter_gets_the_lock_when_it_is_released,
    locks_hold_across_two_of_our_mounts,
    locks_of_the_go_client_hold_here_and_ours_there,
}

fn flocks_exclude_each_other(fixture: &Fixture) {
    let mount = fixture.start();
    let (one, two, three) = (open(mount.at("f")), open(mount.at("f")), open(mount.at("f")));
    one.lock_shared().unwrap();
    two.lock_shared().unwrap();
    assert!(!try_lock(&three));
    one.unlock().unwrap();
    two.unlock().unwrap();
    assert!(try_lock(&three));
    assert!(!try_lock(&one));
    three.unlock().unwrap();
    // Of another kind on the same handle: converted.
    one.lock().unwrap();
    one.lock_shared().unwrap();
    two.lock_shared().unwrap();
}

fn both_kinds_of_locks_are_independent(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.lock().unwrap();
    let mut other = Process::locking(&mount.at("f"), Kind::Write, 0, 0);
    other.says("locked");
    assert_eq!(posix(&file, Kind::Write, 0, 0), Err(Errno::EAGAIN));
    assert!(!flock_of_another(&mount.at("f")));
    other.end();
    posix(&file, Kind::Write, 0, 0).unwrap();
    file.unlock().unwrap();
    assert!(flock_of_another(&mount.at("f")));
}

fn ranges_exclude_only_where_they_overlap(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    let mut other = Process::locking(&mount.at("f"), Kind::Write, 100, 50);
    other.says("locked");
    posix(&file, Kind::Write, 0, 100).unwrap();
    posix(&file, Kind::Write, 150, 0).unwrap();
    assert_eq!(posix(&file, Kind::Read, 149, 1), Err(Errno::EAGAIN));
    assert_eq!(posix(&file, Kind::Write, 0, 0), Err(Errno::EAGAIN));
    other.end();
    eventually("the range is free", || posix(&file, Kind::Write, 0, 0).is_ok());
}

fn a_range_can_be_freed_in_the_middle(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    posix(&file, Kind::Write, 0, 100).unwrap();
    posix(&file, Kind::Unlock, 40, 20).unwrap();
    let mut middle = Process::locking(&mount.at("f"), Kind::Write, 40, 20);
    middle.says("locked");
    let mut left = Process::locking(&mount.at("f"), Kind::Read, 39, 1);
    left.says("waiting");
    let mut right = Process::locking(&mount.at("f"), Kind::Read, 60, 1);
    right.says("waiting");
    posix(&file, Kind::Unlock, 0, 0).unwrap();
    left.says("locked");
    right.says("locked");
}

fn the_conflicting_lock_is_reported(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    assert_eq!(in_the_way(&file, Kind::Write), None);
    let mut other = Process::locking(&mount.at("f"), Kind::Read, 10, 5);
    other.says("locked");
    assert_eq!(in_the_way(&file, Kind::Read), None);
    let pid = other.pid().try_into().unwrap();
    assert_eq!(in_the_way(&file, Kind::Write), Some((pid, 10, 5)));
}

fn locks_of_an_open_file_are_its_own(fixture: &Fixture) {
    let mount = fixture.start();
    let (one, two) = (open(mount.at("f")), open(mount.at("f")));
    of_file(&one, Kind::Write, 0, 10).unwrap();
    assert_eq!(of_file(&two, Kind::Write, 5, 10), Err(Errno::EAGAIN));
    of_file(&two, Kind::Write, 10, 10).unwrap();
    // Closing another handle of the same file releases none of them.
    drop(open(mount.at("f")));
    assert_eq!(of_file(&two, Kind::Read, 0, 1), Err(Errno::EAGAIN));
    drop(one);
    eventually("the range is free", || of_file(&two, Kind::Write, 0, 10).is_ok());
}

fn closing_releases_locks(fixture: &Fixture) {
    let mount = fixture.start();
    let (one, two) = (open(mount.at("f")), open(mount.at("f")));
    one.lock().unwrap();
    posix(&one, Kind::Write, 0, 0).unwrap();
    drop(one);
    eventually("the flock is free", || try_lock(&two));
    let mut other = Process::locking(&mount.at("f"), Kind::Write, 0, 0);
    other.says("locked");
}

fn a_lock_is_free_right_after_a_close(fixture: &Fixture) {
    let mount = fixture.start();
    drop(open(mount.at("f")));
    Process::relocking(&mount.at("f")).says("free");
}

fn the_end_of_a_process_releases_its_locks(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    let mut ranges = Process::locking(&mount.at("f"), Kind::Write, 0, 0);
    ranges.says("locked");
    let path = mount.at("f");
    let script = "exec 9>>\"$0\"; flock 9; echo locked; exec cat";
    let mut whole = Process::start("sh", &["-c", script, path.to_str().unwrap()]);
    whole.says("locked");
    assert!(!try_lock(&file));
    whole.signal(Signal::SIGKILL);
    assert!(!whole.finish());
    eventually("the flock is free", || try_lock(&file));
    ranges.signal(Signal::SIGKILL);
    assert!(!ranges.finish());
    eventually("the range is free", || posix(&file, Kind::Write, 0, 0).is_ok());
}

fn a_signal_ends_the_wait_for_a_flock(fixture: &Fixture) {
    let mount = fixture.start();
    let holder = open(mount.at("f"));
    holder.lock().unwrap();
    let path = mount.at("f");
    for which in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut waiter = Process::start("flock", &[path.to_str().unwrap(), "-c", "true"]);
        waiter.blocks();
        waiter.signal(which);
        assert!(!waiter.finish());
    }
    // No waiter that was interrupted has taken it.
    holder.unlock().unwrap();
    assert!(flock_of_another(&path));
}

fn a_signal_ends_the_wait_for_a_range(fixture: &Fixture) {
    let mount = fixture.start();
    let holder = open(mount.at("f"));
    posix(&holder, Kind::Write, 0, 0).unwrap();
    for which in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut waiter = Process::locking(&mount.at("f"), Kind::Write, 5, 5);
        waiter.says("waiting");
        waiter.blocks();
        waiter.signal(which);
        assert!(!waiter.finish());
    }
    posix(&holder, Kind::Unlock, 0, 0).unwrap();
    let mut other = Process::locking(&mount.at("f"), Kind::Write, 0, 0);
    other.says("locked");
}

fn a_waiter_gets_the_lock_when_it_is_released(fixture: &Fixture) {
    let mount = fixture.start();
    let holder = open(mount.at("f"));
    posix(&holder, Kind::Write, 0, 0).unwrap();
    let mut waiter = Process::locking(&mount.at("f"), Kind::Write, 0, 0);
    waiter.says("waiting");
    waiter.blocks();
    posix(&holder, Kind::Unlock, 0, 0).unwrap();
    waiter.says("locked");
    holder.lock().unwrap();
    let path = mount.at("f");
    let mut waiter = Process::start("flock", &[path.to_str().unwrap(), "-c", "echo mine"]);
    waiter.blocks();
    holder.unlock().unwrap();
    waiter.says("mine");
}

fn locks_hold_across_two_of_our_mounts(fixture: &Fixture) {
    fixture.format(&[]);
    hold_across(fixture, Client::tested(), Client::tested());
}

fn locks_of_the_go_client_hold_here_and_ours_there(fixture: &Fixture) {
    fixture.format(&[]);
    hold_across(fixture, Client::tested(), Client::Go);
}

fn hold_across(fixture: &Fixture, one: Client, two: Client) {
    let (one, two) = (fixture.mount_by(one, &[]), fixture.mount_by(two, &[]));
    for (here, there) in [(&one, &two), (&two, &one)] {
        let (ours, theirs) = (open(here.at("f")), open(there.at("f")));
        ours.lock().unwrap();
        assert!(!try_lock(&theirs));
        // There is none of the other kind.
        posix(&theirs, Kind::Write, 0, 0).unwrap();
        assert_eq!(posix(&ours, Kind::Read, 7, 1), Err(Errno::EAGAIN));
        let mut waiter = Process::locking(&here.at("f"), Kind::Write, 0, 0);
        waiter.says("waiting");
        posix(&theirs, Kind::Unlock, 0, 0).unwrap();
        waiter.says("locked");
        assert_eq!(posix(&theirs, Kind::Write, 0, 0), Err(Errno::EAGAIN));
        waiter.end();
        ours.unlock().unwrap();
        eventually("the flock is free there", || try_lock(&theirs));
        theirs.unlock().unwrap();
    }
}

fn try_lock(file: &File) -> bool {
    match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(error) => panic!("{error}"),
    }
}

fn flock_of_another(path: &Path) -> bool {
    Process::start("flock", &["-n", path.to_str().unwrap(), "-c", "true"]).finish()
}
