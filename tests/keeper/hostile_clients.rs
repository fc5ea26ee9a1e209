//! Clients that send what no client sends, or do not read. Each loses its own connection at most.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use jfs::keeper::server::Timing;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::fixture::{Keeper, Raw, held, memory, put, until};

const LIST: &[u8] = b"\x04\0\0\0\x07\0\0\0\0\0";

fn put_packet(name: &str, count: u8) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[2, 0, count, 0, 9, 0, 0, 0, length, 0], name.as_bytes()].concat()
}

/// The number of descriptors of this process that lead to files of this name in memory.
fn open_files(name: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let wanted = Path::new("/").join(format!("memfd:{name}"));
    let is_it =
        |path: std::path::PathBuf| path.to_string_lossy().starts_with(&*wanted.to_string_lossy());
    links
        .filter_map(|link| std::fs::read_link(link.path()).ok())
        .filter(|p| is_it(p.clone()))
        .count()
}

#[test]
fn random_packets_close_only_their_own_connection() {
    let keeper = Keeper::new();
    let (owner, _events) = keeper.owner();
    put(&owner, "a", "text");
    let file = memory("x");
    let packets = (
        proptest::collection::vec(any::<u8>(), 1..600),
        prop_oneof![Just(None), (1..=12_u8, 0..4_u8).prop_map(Some)],
        0..7_usize,
        any::<bool>(),
    );
    let run =
        |(mut bytes, head, descriptors, greeted): (Vec<u8>, Option<(u8, u8)>, usize, bool)| {
            // Mostly kinds that exist.
            if let Some((kind, count)) = head
                && bytes.len() >= 8
            {
                bytes[..4].copy_from_slice(&[kind, 0, count, 0]);
            }
            // A supervisor's matter, which nobody answers here.
            prop_assume!(bytes[0] != 9 && bytes[0] != 6);
            let raw = if greeted { Raw::greeted(&keeper.path) } else { Raw::new(&keeper.path) };
            raw.send(&bytes, &vec![file.as_fd(); descriptors]).unwrap();
            // Answered, or closed; nothing else.
            raw.receive();
            prop_assert_eq!(held(&owner, "a"), ["text"]);
            Ok(())
        };
    TestRunner::default().run(&packets, run).unwrap();
    assert_eq!(owner.names().unwrap(), ["a"]);
}

#[test]
fn a_packet_that_ends_early_or_late_closes_the_connection() {
    let keeper = Keeper::new();
    let whole = b"\x05\0\0\0\x02\0\0\0\x01\0a";
    for length in 1..whole.len() {
        let raw = Raw::greeted(&keeper.path);
        raw.send(&whole[..length], &[]).unwrap();
        raw.is_closed();
    }
    let raw = Raw::greeted(&keeper.path);
    raw.send(&[whole.as_slice(), b"x"].concat(), &[]).unwrap();
    raw.is_closed();
    let raw = Raw::greeted(&keeper.path);
    raw.send(&vec![4; 5000], &[]).unwrap();
    raw.is_closed();
    keeper.check();
}

#[test]
fn descriptors_that_were_not_announced_are_closed() {
    let keeper = Keeper::new();
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("unwanted", flags).unwrap();
    let before = open_files("unwanted");
    let cases = [(put_packet("a", 1), 2), (put_packet("a", 3), 2), (put_packet("a", 0), 0)];
    let cases = cases.into_iter().chain([
        (put_packet("a", 5), 5),
        (put_packet("a", 4), 200),
        (put_packet("a", 1), 0),
        (LIST.to_vec(), 1),
        (b"\x63\0\0\0\0\0\0\0".to_vec(), 4),
    ]);
    for (packet, descriptors) in cases {
        let raw = Raw::greeted(&keeper.path);
        raw.send(&packet, &vec![file.as_fd(); descriptors]).unwrap();
        raw.is_closed();
    }
    // Refused without an owner, and not kept either.
    let raw = Raw::greeted(&keeper.path);
    raw.send(&put_packet("a", 2), &[file.as_fd(); 2]).unwrap();
    assert_eq!(raw.receive().unwrap()[0], 68);
    until("all are closed", || (open_files("unwanted") == before).then_some(()));
    keeper.check();
}

#[test]
fn hello_comes_first_and_once_and_in_a_known_version() {
    let keeper = Keeper::new();
    let raw = Raw::new(&keeper.path);
    raw.send(LIST, &[]).unwrap();
    raw.is_closed();
    let raw = Raw::greeted(&keeper.path);
    raw.send(b"\x01\0\0\0\x01\0\0\0JFSK\x01\0\x03\0raw", &[]).unwrap();
    raw.is_closed();
    let raw = Raw::new(&keeper.path);
    raw.send(b"\x01\0\0\0\x01\0\0\0JFSK\x02\0\x03\0rawmore", &[]).unwrap();
    let answer = raw.receive().unwrap();
    assert!(answer[0] == 68 && String::from_utf8_lossy(&answer).contains("version 1"));
    raw.is_closed();
}

#[test]
fn a_client_without_a_hello_is_disconnected() {
    let hello_limit = Duration::from_millis(50);
    let keeper = Keeper::with(Timing { hello_limit, ..Timing::default() });
    let raw = Raw::new(&keeper.path);
    raw.is_closed();
    keeper.check();
}

#[test]
fn a_client_that_never_reads_does_not_stop_the_others() {
    let keeper = Keeper::new();
    let (owner, _events) = keeper.owner();
    let file = memory("x");
    for n in 0..40 {
        owner.put(&format!("{n:0>200}"), &[file.as_fd()]).unwrap();
    }
    let raw = Raw::greeted(&keeper.path);
    let mut refused = 0;
    for _ in 0..20_000 {
        if raw.send(LIST, &[]).is_err() {
            refused += 1;
        }
    }
    assert!(refused > 0, "the keeper reads no further when its answers are not read");
    assert_eq!(owner.names().unwrap().len(), 40);
    // As soon as it reads, it is served.
    assert_eq!(raw.receive().unwrap()[0], 65);
    drop(raw);
    keeper.check();
}

#[test]
fn more_connections_than_allowed_wait_and_do_no_harm() {
    let keeper = Keeper::new();
    let (owner, _events) = keeper.owner();
    let mut all: Vec<Raw> = (0..60).map(|_| Raw::greeted(&keeper.path)).collect();
    all.extend((0..20).map(|_| Raw::new(&keeper.path)));
    assert!(owner.names().unwrap().is_empty());
    drop(all);
    keeper.check();
}
