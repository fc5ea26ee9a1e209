//! Locks: flock(2) and fcntl(2), and waiting for them.

use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::fixture::{Fixture, Process, eventually};
use crate::timeout::{MOUNTED, within};

#[test]
fn the_two_kinds_of_locks_are_independent() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let (one, two) = (fixture.open("f"), fixture.open("f"));
        flock(&one, FlockOperation::LockExclusive).unwrap();
        fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
        let refused = flock(&two, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
    });
}

#[test]
fn closing_a_file_releases_its_flock() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let (one, two) = (fixture.open("f"), fixture.open("f"));
        flock(&one, FlockOperation::LockExclusive).unwrap();
        drop(one);
        eventually("the lock is free", || {
            flock(&two, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    });
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let holder = fixture.open("f");
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let path = fixture.path("f");
        let waiter = Process::start("flock", &[path.to_str().unwrap(), "-c", "echo mine"]);
        eventually("somebody waits", || fixture.fs.seen.waiting.load(Ordering::SeqCst) >= 2);
        flock(&holder, FlockOperation::Unlock).unwrap();
        assert_eq!(waiter.finish(), (true, b"mine\n".to_vec()));
    });
}

#[test]
fn a_signal_ends_the_wait_for_a_lock() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let holder = fixture.open("f");
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        for (n, signal) in ["TERM", "KILL"].into_iter().enumerate() {
            let path = fixture.path("f");
            let waiter = Process::start("flock", &[path.to_str().unwrap(), "-c", "echo mine"]);
            // The first to wait is the holder itself, whose lock was free.
            eventually("somebody waits", || {
                fixture.fs.seen.waiting.load(Ordering::SeqCst) == 2 + n
            });
            waiter.signal(signal);
            assert_eq!(waiter.finish(), (false, Vec::new()));
        }
        // No waiter that was interrupted has taken it.
        flock(&holder, FlockOperation::Unlock).unwrap();
        let next = fixture.open("f");
        flock(&next, FlockOperation::NonBlockingLockExclusive).unwrap();
    });
}

#[test]
fn locks_of_another_process_conflict() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let path = fixture.path("f");
        let holder = fixture.open("f");
        flock(&holder, FlockOperation::LockShared).unwrap();
        let try_lock = |kind: &str| {
            let arguments = ["-n", kind, path.to_str().unwrap(), "-c", "true"];
            Process::start("flock", &arguments).finish().0
        };
        assert!(try_lock("-s"));
        assert!(!try_lock("-x"));
    });
}
