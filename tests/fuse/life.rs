//! The end of a session.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jfs::fuse::{End, Unmount, mounted_at};

use crate::rig::{Process, Rig, eventually};
use crate::synth::Behaviour;
use crate::timeout::{MOUNTED, within};

#[test]
fn unmounting_from_outside_ends_the_session() {
    within(MOUNTED, || {
        let rig = Rig::new();
        fs::write(rig.path("f"), "content").unwrap();
        let point = rig.point().to_str().unwrap().to_owned();
        assert!(Process::start("umount", &[&point]).finish().0);
        assert_eq!(rig.end(), End::Unmounted);
        assert!(rig.synth.seen.destroyed.load(Ordering::SeqCst));
    });
}

#[test]
fn a_mount_in_use_stays_unless_it_is_unmounted_lazily() {
    within(MOUNTED, || {
        let mut rig = Rig::new();
        let file = rig.open("f");
        let busy = rig.mount().unmount(Unmount::Plain).unwrap_err();
        assert!(busy.to_string().contains("in use"), "{busy}");
        rig.mount().unmount(Unmount::Lazy).unwrap();
        assert!(mounted_at(rig.point()).is_none());
        // Still served: somebody has a file open.
        file.set_len(77).unwrap();
        assert_eq!(rig.synth.content("f").len(), 77);
        drop(file);
        assert_eq!(rig.end(), End::Unmounted);
    });
}

#[test]
fn a_forced_unmount_frees_who_waits() {
    within(MOUNTED, || {
        let mut rig = Rig::new();
        let ino = rig.file("f", b"content");
        rig.synth.behave(ino, Behaviour::HangStubborn);
        let reader = Process::start("cat", &[rig.path("f").to_str().unwrap()]);
        eventually("it hangs", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 1);
        rig.mount().unmount(Unmount::Force).unwrap();
        assert!(!reader.finish().0);
        assert_eq!(rig.end(), End::Unmounted);
    });
}

#[test]
fn a_dropped_mount_is_gone() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point().to_owned();
        assert_eq!(mounted_at(&point).unwrap().kind, "fuse.juicefs");
        drop(rig);
        assert!(mounted_at(&point).is_none());
    });
}

#[test]
fn stopping_waits_for_what_is_in_flight_but_not_for_ever() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let ino = rig.file("f", b"content");
        rig.synth.behave(ino, Behaviour::HangStubborn);
        let reader = Process::start("cat", &[rig.path("f").to_str().unwrap()]);
        eventually("it hangs", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 1);
        let left = rig.runtime.block_on(rig.session.stop(Duration::from_millis(200)));
        assert!(!left.receiving && left.unfinished > 0, "{left:?}");
        rig.synth.open_gate();
        let left = rig.runtime.block_on(rig.session.stop(crate::rig::PATIENCE));
        assert_eq!(left.unfinished, 0);
        // Nobody receives its last requests any more, so it ends when the mount does.
        drop(rig);
        reader.finish();
    });
}
