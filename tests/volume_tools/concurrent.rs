//! `gc --delete` while both clients write.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::numbers::{Tool, same_fsck};
use crate::on_both;
use crate::scene::{bytes, leak, make_old, objects};
use crate::support::command::run;
use crate::support::fixture::{Client, Fixture, PATIENCE, ours};

on_both! { nothing_that_clients_write_meanwhile_is_deleted }

const FILES: usize = 20;
const ROUNDS: usize = 4;

/// All objects that exist before are old, so only metadata keeps them. Their slices move to other
/// files meanwhile, and new ones are written.
fn nothing_that_clients_write_meanwhile_is_deleted(fixture: &Fixture) {
    fixture.format(&[]);
    let mounts = [Client::Ours, Client::Go].map(|client| fixture.mount_by(client, &[]));
    for (mount, top) in mounts.iter().zip(["ours", "go"]) {
        fs::create_dir(mount.at(top)).unwrap();
        for number in 0..FILES {
            fs::write(mount.at(format!("{top}/{number}-0")), bytes(number, 5000)).unwrap();
        }
    }
    for path in objects(fixture) {
        make_old(&path);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = mounts
            .iter()
            .zip(["ours", "go"])
            .map(|(mount, top)| scope.spawn(move || move_slices(&mount.at(top))))
            .collect();
        let collector = scope.spawn(|| {
            let mut leaked = Vec::new();
            while !done.load(Ordering::Relaxed) {
                leaked.push(leak(fixture, 900_000_000 + leaked.len() as u64, 10));
                Tool::Ours.run(fixture, "gc", &["--delete"]).ok();
                assert!(!leaked.last().unwrap().exists());
            }
            leaked.len()
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(collector.join().unwrap() > 0);
    });
    for mount in mounts {
        mount.unmount();
    }
    let mount = fixture.mount_by(Client::Ours, &[]);
    for top in ["ours", "go"] {
        for number in 0..FILES {
            let path = mount.at(format!("{top}/{number}-{ROUNDS}"));
            assert!(fs::read(path).unwrap() == bytes(number, 5000), "{top}/{number}");
        }
    }
    mount.unmount();
    assert!(same_fsck(fixture, &[]).is_clean);
}

/// Gives each file's slices to a new file and removes the old one, and writes new files.
fn move_slices(dir: &Path) {
    for round in 0..ROUNDS {
        for number in 0..FILES {
            let (from, to) = (
                dir.join(format!("{number}-{round}")),
                dir.join(format!("{number}-{}", round + 1)),
            );
            let mut clone = ours();
            clone.arg("clone").args([&from, &to]);
            run(clone, PATIENCE).ok();
            fs::remove_file(from).unwrap();
            fs::write(dir.join("new"), bytes(number, 100)).unwrap();
        }
    }
}
