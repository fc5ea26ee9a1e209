//! The end of a session.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jfs::fuse::{SessionEnd, Unmount, mounted_at};

use crate::fixture::{Fixture, Process, eventually};
use crate::memory_fs::Behaviour;
use crate::timeout::{MOUNTED, within};

#[test]
fn unmounting_from_outside_ends_the_session() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fs::write(fixture.path("f"), "content").unwrap();
        let point = fixture.point().to_str().unwrap().to_owned();
        assert!(Process::start("umount", &[&point]).finish().0);
        assert_eq!(fixture.end(), SessionEnd::Unmounted);
        assert!(fixture.fs.seen.destroyed.load(Ordering::SeqCst));
    });
}

#[test]
fn a_mount_in_use_stays_unless_it_is_unmounted_lazily() {
    within(MOUNTED, || {
        let mut fixture = Fixture::new();
        let file = fixture.open("f");
        let busy = fixture.mount().unmount(Unmount::Plain).unwrap_err();
        assert!(busy.to_string().contains("in use"), "{busy}");
        fixture.mount().unmount(Unmount::Lazy).unwrap();
        assert!(mounted_at(fixture.point()).is_none());
        // Still served: a file is open.
        file.set_len(77).unwrap();
        assert_eq!(fixture.fs.content("f").len(), 77);
        drop(file);
        assert_eq!(fixture.end(), SessionEnd::Unmounted);
    });
}

#[test]
fn a_forced_unmount_frees_waiting_processes() {
    within(MOUNTED, || {
        let mut fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        fixture.fs.behave(ino, Behaviour::HangStubborn);
        let reader = Process::start("cat", &[fixture.path("f").to_str().unwrap()]);
        eventually("it hangs", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 1);
        fixture.mount().unmount(Unmount::Force).unwrap();
        assert!(!reader.finish().0);
        assert_eq!(fixture.end(), SessionEnd::Unmounted);
    });
}

#[test]
fn a_dropped_mount_is_gone() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let point = fixture.point().to_owned();
        assert_eq!(mounted_at(&point).unwrap().kind, "fuse.juicefs");
        drop(fixture);
        assert!(mounted_at(&point).is_none());
    });
}

#[test]
fn stopping_waits_for_requests_in_flight_but_not_forever() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        fixture.fs.behave(ino, Behaviour::HangStubborn);
        let reader = Process::start("cat", &[fixture.path("f").to_str().unwrap()]);
        eventually("it hangs", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 1);
        let left = fixture.runtime.block_on(fixture.session.stop(Duration::from_millis(200)));
        assert!(!left.receiving && left.unfinished > 0, "{left:?}");
        fixture.fs.open_gate();
        let left = fixture.runtime.block_on(fixture.session.stop(crate::fixture::PATIENCE));
        assert_eq!(left.unfinished, 0);
        // Nobody receives its last requests any more, so it ends when the mount does.
        drop(fixture);
        reader.finish();
    });
}
