//! Locks: flock(2) and fcntl(2), and waiting for them.

use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::rig::{Process, Rig, eventually};
use crate::timeout::{MOUNTED, within};

#[test]
fn the_two_kinds_of_locks_do_not_see_each_other() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let (one, two) = (rig.open("f"), rig.open("f"));
        flock(&one, FlockOperation::LockExclusive).unwrap();
        fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
        let refused = flock(&two, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
    });
}

#[test]
fn closing_a_file_gives_up_its_flock() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let (one, two) = (rig.open("f"), rig.open("f"));
        flock(&one, FlockOperation::LockExclusive).unwrap();
        drop(one);
        eventually("the lock is free", || {
            flock(&two, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    });
}

#[test]
fn who_waits_for_a_lock_gets_it_when_it_is_free() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let holder = rig.open("f");
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let path = rig.path("f");
        let waiter = Process::start("flock", &[path.to_str().unwrap(), "-c", "echo mine"]);
        eventually("somebody waits", || rig.synth.seen.waiting.load(Ordering::SeqCst) >= 2);
        flock(&holder, FlockOperation::Unlock).unwrap();
        assert_eq!(waiter.finish(), (true, b"mine\n".to_vec()));
    });
}

#[test]
fn who_waits_for_a_lock_is_freed_by_a_signal() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let holder = rig.open("f");
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        for (n, signal) in ["TERM", "KILL"].into_iter().enumerate() {
            let path = rig.path("f");
            let waiter = Process::start("flock", &[path.to_str().unwrap(), "-c", "echo mine"]);
            // The first to wait is the holder itself, whose lock was free.
            eventually("somebody waits", || rig.synth.seen.waiting.load(Ordering::SeqCst) == 2 + n);
            waiter.signal(signal);
            assert_eq!(waiter.finish(), (false, Vec::new()));
        }
        // Nobody who left has taken it.
        flock(&holder, FlockOperation::Unlock).unwrap();
        let next = rig.open("f");
        flock(&next, FlockOperation::NonBlockingLockExclusive).unwrap();
    });
}

#[test]
fn locks_of_another_process_are_in_the_way() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let path = rig.path("f");
        let holder = rig.open("f");
        flock(&holder, FlockOperation::LockShared).unwrap();
        let try_lock = |kind: &str| {
            let arguments = ["-n", kind, path.to_str().unwrap(), "-c", "true"];
            Process::start("flock", &arguments).finish().0
        };
        assert!(try_lock("-s"));
        assert!(!try_lock("-x"));
    });
}
