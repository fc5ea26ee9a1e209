//! Handing a live mount from one session to the next.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jfs::fuse::{Leftover, Negotiated, Session, SessionEnd, SessionOptions};

use crate::fixture::{Fixture, PATIENCE, Process, eventually};
use crate::memory_fs::{Behaviour, MemoryFileSystem, MemoryFs};
use crate::timeout::{MOUNTED, within};

/// Starts another session on the descriptor, with only what a state file would contain.
fn resume(fixture: &Fixture, fs: &Arc<MemoryFs>) -> Session {
    let device = fixture.session.device().try_clone_to_owned().unwrap();
    let stored = serde_json::to_string(fixture.session.agreed()).unwrap();
    let agreed: Negotiated = serde_json::from_str(&stored).unwrap();
    let served = Arc::new(MemoryFileSystem(Arc::clone(fs)));
    let handle = fixture.runtime.handle().clone();
    Session::resume(device, agreed, served, &SessionOptions::default(), handle).unwrap()
}

#[test]
fn a_session_stops_and_its_mount_stays() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", b"content");
        assert_eq!(fs::read(fixture.path("f")).unwrap(), b"content");
        let left = fixture.runtime.block_on(fixture.session.stop(PATIENCE));
        assert_eq!(left, Leftover { receiving: false, unfinished: 0 });
        assert_eq!(fixture.end(), SessionEnd::Stopped);
        assert!(!fixture.fs.seen.destroyed.load(Ordering::SeqCst));

        // Waits in the kernel for the next session.
        let reader = Process::start("cat", &[fixture.path("f").to_str().unwrap()]);
        let next = fixture.fs.successor();
        let _session = resume(&fixture, &next);
        assert_eq!(reader.finish(), (true, b"content".to_vec()));
    });
}

#[test]
fn requests_in_flight_are_resent_to_the_next_session() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        fixture.fs.behave(ino, Behaviour::HangStubborn);
        let readers: Vec<Process> = (0..8)
            .map(|_| {
                let input = format!("if={}", fixture.path("f").display());
                Process::start("dd", &[&input, "iflag=direct", "status=none"])
            })
            .collect();
        eventually("all hang", || fixture.fs.seen.begun.load(Ordering::SeqCst) == 8);
        let left = fixture.runtime.block_on(fixture.session.stop(Duration::from_millis(200)));
        assert_eq!(left, Leftover { receiving: false, unfinished: left.unfinished });
        assert!(left.unfinished >= 8);

        let next = fixture.fs.successor();
        next.behave(ino, Behaviour::Plain);
        let _session = resume(&fixture, &next);
        for reader in readers {
            assert_eq!(reader.finish(), (true, b"content".to_vec()));
        }
        assert_eq!(next.seen.resent.load(Ordering::SeqCst), 8);

        // The replies of the first session come too late, and do no harm.
        fixture.fs.open_gate();
        fs::write(fixture.path("g"), "served").unwrap();
        assert_eq!(next.content("g"), b"served");
    });
}

#[test]
fn a_resent_request_can_still_be_interrupted() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        fixture.fs.behave(ino, Behaviour::HangStubborn);
        let input = format!("if={}", fixture.path("f").display());
        let reader = Process::start("dd", &[&input, "iflag=direct", "status=none"]);
        eventually("it hangs", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 1);
        fixture.runtime.block_on(fixture.session.stop(Duration::from_millis(200)));

        let next = fixture.fs.successor();
        next.behave(ino, Behaviour::HangAbortable);
        let _session = resume(&fixture, &next);
        eventually("it hangs again", || next.seen.begun.load(Ordering::SeqCst) >= 1);
        reader.signal("KILL");
        assert!(!reader.finish().0);
        fixture.fs.open_gate();
    });
}
