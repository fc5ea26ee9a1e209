//! Invalidating what the kernel caches.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use jfs::fuse::Notification;
use jfs::meta::Ino;

use crate::fixture::{Fixture, Process, eventually};
use crate::memory_fs::Behaviour;
use crate::timeout::{MOUNTED, within};

const LONG: Duration = Duration::from_hours(1);
const ROOT: Ino = Ino(1);

#[test]
fn a_change_of_content_is_seen_after_its_notification() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.fs.keep(LONG);
        let ino = fixture.file("f", b"old");
        // Open all the time: opening it again would drop the cache.
        let file = fixture.open("f");
        let read = || {
            let mut found = vec![0; 10];
            let length = file.read_at(&mut found, 0).unwrap();
            found.truncate(length);
            found
        };
        assert_eq!(read(), b"old");
        fs::metadata(fixture.path("f")).unwrap();
        fixture.fs.replace(ino, b"newer");
        assert_eq!(fs::metadata(fixture.path("f")).unwrap().len(), 3);
        let all = Notification::Inode { ino: Ino(ino), offset: 0, length: 0 };
        assert!(fixture.session.notifier().send(all));
        fixture.settle();
        assert_eq!(fs::metadata(fixture.path("f")).unwrap().len(), 5);
        assert_eq!(read(), b"newer");
    });
}

#[test]
fn a_removed_name_is_gone_after_its_notification() {
    within(MOUNTED, || {
        let notifications: [fn(u64) -> Notification; 3] = [
            |_| Notification::Entry { dir: ROOT, name: Bytes::from("f") },
            |_| Notification::ExpireEntry { dir: ROOT, name: Bytes::from("f") },
            |ino| Notification::Delete { dir: ROOT, ino: Ino(ino), name: Bytes::from("f") },
        ];
        for notification in notifications {
            let fixture = Fixture::new();
            fixture.fs.keep(LONG);
            let ino = fixture.file("f", b"content");
            assert!(fixture.path("f").exists());
            fixture.fs.remove("f");
            assert!(fixture.path("f").exists());
            assert!(fixture.session.notifier().send(notification(ino)));
            fixture.settle();
            assert!(!fixture.path("f").exists());
        }
    });
}

#[test]
fn content_can_be_stored_in_the_kernels_cache() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.fs.keep(LONG);
        let content = vec![7; 4096];
        let ino = fixture.file("f", &content);
        let file = fixture.open("f");
        let store = Notification::Store { ino: Ino(ino), offset: 0, data: vec![8; 4096].into() };
        assert!(fixture.session.notifier().send(store));
        fixture.settle();
        let mut found = [0; 10];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [8; 10]);
        assert_eq!(fixture.fs.seen.reads.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_notification_about_something_unknown_does_no_harm() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let unknown = Notification::Inode { ino: Ino(12345), offset: 0, length: 0 };
        assert!(fixture.session.notifier().send(unknown));
        let name = Bytes::from("nothing");
        assert!(fixture.session.notifier().send(Notification::Entry { dir: ROOT, name }));
        fixture.settle();
        fs::write(fixture.path("f"), "served").unwrap();
    });
}

#[test]
fn a_blocked_notification_delays_no_request() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.fs.keep(LONG);
        let ino = fixture.file("f", &[1; 4096]);
        fixture.fs.behave(ino, Behaviour::HangAbortable);
        let reader = Process::start("cat", &[fixture.path("f").to_str().unwrap()]);
        eventually("the read begins", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 1);
        // The page is locked until its read completes.
        for _ in 0..10 {
            let all = Notification::Inode { ino: Ino(ino), offset: 0, length: 0 };
            assert!(fixture.session.notifier().send(all));
        }
        fixture.file("g", b"other");
        assert_eq!(fs::read(fixture.path("g")).unwrap(), b"other");
        fixture.fs.open_gate();
        assert_eq!(reader.finish(), (true, vec![1; 4096]));
        fixture.settle();
    });
}
