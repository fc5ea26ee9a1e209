//! A caller who no longer wants to wait need not.

use std::fs;
use std::sync::atomic::Ordering;

use crate::rig::{Process, Rig, eventually};
use crate::synth::Behaviour;
use crate::timeout::{MOUNTED, within};

/// Not through the page cache: what it reads ahead has no caller that could be interrupted.
fn read_directly(rig: &Rig) -> Process {
    let input = format!("if={}", rig.path("f").display());
    Process::start("dd", &[&input, "iflag=direct", "status=none"])
}

fn hang(behaviour: Behaviour) -> (Rig, Process) {
    let rig = Rig::new();
    let ino = rig.file("f", b"content");
    rig.synth.behave(ino, behaviour);
    let reader = read_directly(&rig);
    eventually("the read begins", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 1);
    (rig, reader)
}

#[test]
fn a_reader_that_hangs_can_be_killed() {
    within(MOUNTED, || {
        for signal in ["KILL", "INT"] {
            let (rig, reader) = hang(Behaviour::HangAbortable);
            reader.signal(signal);
            assert_eq!(reader.finish(), (false, Vec::new()));
            let seen = &rig.synth.seen;
            eventually("all tasks were dropped", || {
                seen.aborted.load(Ordering::SeqCst) == seen.begun.load(Ordering::SeqCst)
            });
        }
    });
}

#[test]
fn an_operation_that_must_not_be_dropped_goes_on_without_its_caller() {
    within(MOUNTED, || {
        let (rig, reader) = hang(Behaviour::HangDetachable);
        reader.signal("KILL");
        assert_eq!(reader.finish(), (false, Vec::new()));
        let seen = &rig.synth.seen;
        assert_eq!(seen.aborted.load(Ordering::SeqCst), 0);
        assert_eq!(seen.orphans.load(Ordering::SeqCst), 0);
        rig.synth.open_gate();
        eventually("what it found is an orphan", || seen.orphans.load(Ordering::SeqCst) >= 1);
    });
}

#[test]
fn an_operation_that_cannot_be_interrupted_is_waited_for() {
    within(MOUNTED, || {
        let (rig, mut reader) = hang(Behaviour::HangStubborn);
        reader.signal("KILL");
        // Others are served meanwhile, and the interrupt is not the end of the session.
        rig.file("g", b"other");
        assert_eq!(fs::read(rig.path("g")).unwrap(), b"other");
        assert!(reader.is_running());
        rig.synth.open_gate();
        assert!(!reader.finish().0);
    });
}

#[test]
fn a_request_that_is_answered_in_time_knows_nothing_of_it() {
    within(MOUNTED, || {
        let (rig, reader) = hang(Behaviour::HangAbortable);
        rig.synth.open_gate();
        assert_eq!(reader.finish(), (true, b"content".to_vec()));
        assert_eq!(rig.synth.seen.aborted.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_reader_that_waits_for_the_page_cache_can_be_killed() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let ino = rig.file("f", b"content");
        rig.synth.behave(ino, Behaviour::HangAbortable);
        let reader = Process::start("cat", &[rig.path("f").to_str().unwrap()]);
        eventually("the read begins", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 1);
        reader.signal("KILL");
        assert!(!reader.finish().0);
        rig.synth.open_gate();
    });
}

#[test]
fn many_are_killed_at_once() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let ino = rig.file("f", b"content");
        rig.synth.behave(ino, Behaviour::HangAbortable);
        let readers: Vec<Process> = (0..40).map(|_| read_directly(&rig)).collect();
        eventually("all begin", || rig.synth.seen.begun.load(Ordering::SeqCst) >= 40);
        for reader in &readers {
            reader.signal("KILL");
        }
        for reader in readers {
            assert!(!reader.finish().0);
        }
    });
}
