//! Interrupting callers.

use std::fs;
use std::sync::atomic::Ordering;

use crate::fixture::{Fixture, Process, eventually};
use crate::memory_fs::Behaviour;
use crate::timeout::{MOUNTED, within};

/// Bypasses the page cache: its readahead has no caller that could be interrupted.
fn read_directly(fixture: &Fixture) -> Process {
    let input = format!("if={}", fixture.path("f").display());
    Process::start("dd", &[&input, "iflag=direct", "status=none"])
}

fn hang(behaviour: Behaviour) -> (Fixture, Process) {
    let fixture = Fixture::new();
    let ino = fixture.file("f", b"content");
    fixture.fs.behave(ino, behaviour);
    let reader = read_directly(&fixture);
    eventually("the read begins", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 1);
    (fixture, reader)
}

#[test]
fn a_reader_that_hangs_can_be_killed() {
    within(MOUNTED, || {
        for signal in ["KILL", "INT"] {
            let (fixture, reader) = hang(Behaviour::HangAbortable);
            reader.signal(signal);
            assert_eq!(reader.finish(), (false, Vec::new()));
            let seen = &fixture.fs.seen;
            eventually("all tasks were dropped", || {
                seen.aborted.load(Ordering::SeqCst) == seen.begun.load(Ordering::SeqCst)
            });
        }
    });
}

#[test]
fn a_detachable_operation_continues_without_its_caller() {
    within(MOUNTED, || {
        let (fixture, reader) = hang(Behaviour::HangDetachable);
        reader.signal("KILL");
        assert_eq!(reader.finish(), (false, Vec::new()));
        let seen = &fixture.fs.seen;
        assert_eq!(seen.aborted.load(Ordering::SeqCst), 0);
        assert_eq!(seen.orphans.load(Ordering::SeqCst), 0);
        fixture.fs.open_gate();
        eventually("what it found is an orphan", || seen.orphans.load(Ordering::SeqCst) >= 1);
    });
}

#[test]
fn an_uninterruptible_operation_is_waited_for() {
    within(MOUNTED, || {
        let (fixture, mut reader) = hang(Behaviour::HangStubborn);
        reader.signal("KILL");
        // Others are served meanwhile, and the interrupt does not end the session.
        fixture.file("g", b"other");
        assert_eq!(fs::read(fixture.path("g")).unwrap(), b"other");
        assert!(reader.is_running());
        fixture.fs.open_gate();
        assert!(!reader.finish().0);
    });
}

#[test]
fn a_request_that_completes_in_time_is_not_interrupted() {
    within(MOUNTED, || {
        let (fixture, reader) = hang(Behaviour::HangAbortable);
        fixture.fs.open_gate();
        assert_eq!(reader.finish(), (true, b"content".to_vec()));
        assert_eq!(fixture.fs.seen.aborted.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_reader_that_waits_for_the_page_cache_can_be_killed() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        fixture.fs.behave(ino, Behaviour::HangAbortable);
        let reader = Process::start("cat", &[fixture.path("f").to_str().unwrap()]);
        eventually("the read begins", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 1);
        reader.signal("KILL");
        assert!(!reader.finish().0);
        fixture.fs.open_gate();
    });
}

#[test]
fn many_callers_are_killed_at_once() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        fixture.fs.behave(ino, Behaviour::HangAbortable);
        let readers: Vec<Process> = (0..40).map(|_| read_directly(&fixture)).collect();
        eventually("all begin", || fixture.fs.seen.begun.load(Ordering::SeqCst) >= 40);
        for reader in &readers {
            reader.signal("KILL");
        }
        for reader in readers {
            assert!(!reader.finish().0);
        }
    });
}
