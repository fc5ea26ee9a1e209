//! A live mount goes from one session to the next.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jfs::fuse::{Agreed, End, Leftover, Session, Setup};

use crate::rig::{PATIENCE, Process, Rig, eventually};
use crate::synth::{Behaviour, Served, Synth};
use crate::timeout::{MOUNTED, within};

/// Another session on the descriptor, knowing only what a state record would tell.
fn resume(rig: &Rig, synth: &Arc<Synth>) -> Session {
    let device = rig.session.device().try_clone_to_owned().unwrap();
    let stored = serde_json::to_string(rig.session.agreed()).unwrap();
    let agreed: Agreed = serde_json::from_str(&stored).unwrap();
    let served = Arc::new(Served(Arc::clone(synth)));
    let handle = rig.runtime.handle().clone();
    Session::resume(device, agreed, served, &Setup::default(), handle).unwrap()
}

#[test]
fn a_session_stops_while_its_mount_stays() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("f", b"content");
        assert_eq!(fs::read(rig.path("f")).unwrap(), b"content");
        let left = rig.runtime.block_on(rig.session.stop(PATIENCE));
        assert_eq!(left, Leftover { receiving: false, unfinished: 0 });
        assert_eq!(rig.end(), End::Stopped);
        assert!(!rig.synth.seen.destroyed.load(Ordering::SeqCst));

        // Waits in the kernel for somebody to answer it.
        let reader = Process::start("cat", &[rig.path("f").to_str().unwrap()]);
        let next = rig.synth.successor();
        let _session = resume(&rig, &next);
        assert_eq!(reader.finish(), (true, b"content".to_vec()));
    });
}

#[test]
fn what_was_in_flight_is_sent_again_to_the_next_session() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let ino = rig.file("f", b"content");
        rig.synth.behave(ino, Behaviour::HangStubborn);
        let readers: Vec<Process> = (0..8)
            .map(|_| {
                let input = format!("if={}", rig.path("f").display());
                Process::start("dd", &[&input, "iflag=direct", "status=none"])
            })
            .collect();
        eventually("all hang", || rig.synth.seen.begun.load(Ordering::SeqCst) == 8);
        let left = rig.runtime.block_on(rig.session.stop(Duration::from_millis(200)));
        assert_eq!(left, Leftover { receiving: false, unfinished: left.unfinished });
        assert!(left.unfinished >= 8);

        let next = rig.synth.successor();
        next.behave(ino, Behaviour::Plain);
        let session = resume(&rig, &next);
        session.resend().unwrap();
        for reader in readers {
            assert_eq!(reader.finish(), (true, b"content".to_vec()));
        }
        assert_eq!(next.seen.resent.load(Ordering::SeqCst), 8);

        // The answers of the first session come too late, and do no harm.
        rig.synth.open_gate();
        fs::write(rig.path("g"), "served").unwrap();
        assert_eq!(next.content("g"), b"served");
    });
}

#[test]
fn a_request_that_was_sent_again_can_still_be_interrupted() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let ino = rig.file("f", b"content");
        rig.synth.behave(ino, Behaviour::HangStubborn);
        let input = format!("if={}", rig.path("f").display());
        let reader = Process::start("dd", &[&input, "iflag=direct", "status=none"]);
        eventually("it hangs", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 1);
        rig.runtime.block_on(rig.session.stop(Duration::from_millis(200)));

        let next = rig.synth.successor();
        next.behave(ino, Behaviour::HangAbortable);
        let session = resume(&rig, &next);
        session.resend().unwrap();
        eventually("it hangs again", || next.seen.begun.load(Ordering::SeqCst) >= 1);
        reader.signal("KILL");
        assert!(!reader.finish().0);
        rig.synth.open_gate();
    });
}
