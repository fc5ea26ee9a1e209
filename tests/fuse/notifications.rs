//! The kernel learns what it must not keep.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use jfs::fuse::Notification;
use jfs::meta::Ino;

use crate::rig::{Process, Rig, eventually};
use crate::synth::Behaviour;
use crate::timeout::{MOUNTED, within};

const LONG: Duration = Duration::from_hours(1);
const ROOT: Ino = Ino(1);

#[test]
fn a_change_of_content_is_seen_after_its_notification() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.synth.keep(LONG);
        let ino = rig.file("f", b"old");
        // Open all the time: opening anew would drop what is cached.
        let file = rig.open("f");
        let read = || {
            let mut found = vec![0; 10];
            let length = file.read_at(&mut found, 0).unwrap();
            found.truncate(length);
            found
        };
        assert_eq!(read(), b"old");
        fs::metadata(rig.path("f")).unwrap();
        rig.synth.replace(ino, b"newer");
        assert_eq!(fs::metadata(rig.path("f")).unwrap().len(), 3);
        let all = Notification::Inode { ino: Ino(ino), offset: 0, length: 0 };
        assert!(rig.session.notifier().send(all));
        rig.settle();
        assert_eq!(fs::metadata(rig.path("f")).unwrap().len(), 5);
        assert_eq!(read(), b"newer");
    });
}

#[test]
fn a_name_that_is_gone_is_gone_after_its_notification() {
    within(MOUNTED, || {
        let notifications: [fn(u64) -> Notification; 3] = [
            |_| Notification::Entry { dir: ROOT, name: Bytes::from("f") },
            |_| Notification::ExpireEntry { dir: ROOT, name: Bytes::from("f") },
            |ino| Notification::Delete { dir: ROOT, ino: Ino(ino), name: Bytes::from("f") },
        ];
        for notification in notifications {
            let rig = Rig::new();
            rig.synth.keep(LONG);
            let ino = rig.file("f", b"content");
            assert!(rig.path("f").exists());
            rig.synth.remove("f");
            assert!(rig.path("f").exists());
            assert!(rig.session.notifier().send(notification(ino)));
            rig.settle();
            assert!(!rig.path("f").exists());
        }
    });
}

#[test]
fn content_can_be_given_before_it_is_asked_for() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.synth.keep(LONG);
        let content = vec![7; 4096];
        let ino = rig.file("f", &content);
        let file = rig.open("f");
        let store = Notification::Store { ino: Ino(ino), offset: 0, data: vec![8; 4096].into() };
        assert!(rig.session.notifier().send(store));
        rig.settle();
        let mut found = [0; 10];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [8; 10]);
        assert_eq!(rig.synth.seen.reads.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_notification_about_something_unknown_does_no_harm() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let unknown = Notification::Inode { ino: Ino(12345), offset: 0, length: 0 };
        assert!(rig.session.notifier().send(unknown));
        let name = Bytes::from("nothing");
        assert!(rig.session.notifier().send(Notification::Entry { dir: ROOT, name }));
        rig.settle();
        fs::write(rig.path("f"), "served").unwrap();
    });
}

#[test]
fn a_notification_that_must_wait_for_an_answer_holds_up_nobody() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.synth.keep(LONG);
        let ino = rig.file("f", &[1; 4096]);
        rig.synth.behave(ino, Behaviour::HangAbortable);
        let reader = Process::start("cat", &[rig.path("f").to_str().unwrap()]);
        eventually("the read begins", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 1);
        // The page is locked until its read is answered.
        for _ in 0..10 {
            let all = Notification::Inode { ino: Ino(ino), offset: 0, length: 0 };
            assert!(rig.session.notifier().send(all));
        }
        rig.file("g", b"other");
        assert_eq!(fs::read(rig.path("g")).unwrap(), b"other");
        rig.synth.open_gate();
        assert_eq!(reader.finish(), (true, vec![1; 4096]));
        rig.settle();
    });
}
