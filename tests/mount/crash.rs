//! The mount is killed while it works: synced data survives, and its locks and files are released.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::fixture::{KIB, assert_same, bytes, names, open};
use crate::on_both;
use crate::process::{Kind, Process, posix};
use crate::support::command::run;
use crate::support::fixture::{Client, Fixture, Mounted, PATIENCE, eventually, ours};

on_both! {
    synced_data_survives_a_kill,
    synced_data_survives_a_kill_with_writeback,
    locks_and_files_of_a_killed_mount_are_released,
}

fn synced_data_survives_a_kill(fixture: &Fixture) {
    fixture.format(&[]);
    kill_while_writing(fixture, &[]);
}

fn synced_data_survives_a_kill_with_writeback(fixture: &Fixture) {
    fixture.format(&[]);
    let cache = fixture.folder().join("kept.cache");
    let cache = cache.to_str().unwrap();
    // Nothing is uploaded before the kill: all data is on the disk of this host.
    kill_while_writing(fixture, &["--writeback", "--upload-delay", "1h", "--cache-dir", cache]);
}

fn kill_while_writing(fixture: &Fixture, options: &[&str]) {
    let mut synced = Vec::new();
    for round in 0..3_u64 {
        let mount = fixture.mount(options);
        check(&mount, &synced);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for writer in 0..3_u64 {
                // By its root: once it is unmounted, its path is that of the folder below.
                let (root, done) = (File::open(mount.path()).unwrap(), &done);
                scope.spawn(move || {
                    // Until the mount is gone.
                    for n in 0.. {
                        let seed = round * 1_000_000 + writer * 100_000 + n;
                        let name = format!("f{seed}");
                        let content = bytes(seed, 40 * KIB + seed % 7000);
                        let write = || -> std::io::Result<()> {
                            let mut file = create(&root, &name)?;
                            // In several writes, so that some are in flight when it ends.
                            for part in content.chunks(9000) {
                                file.write_all(part)?;
                            }
                            if n % 3 == 0 {
                                // Not synced: closed.
                                drop(file);
                            } else {
                                file.sync_all()?;
                                // Nothing is promised after this.
                                file.write_all_at(b"later", content.len() as u64)?;
                                done.lock().unwrap().push(seed);
                            }
                            Ok(())
                        };
                        if write().is_err() {
                            break;
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(1500));
            mount.kill();
        });
        let done = done.into_inner().unwrap();
        assert!(!done.is_empty(), "nothing was synced before the kill");
        synced.extend(done);
    }
    let mount = fixture.mount(options);
    check(&mount, &synced);
    // Every file can be read, whatever it contains.
    for name in names(mount.path()) {
        fs::read(mount.at(name)).unwrap();
    }
    // Staged blocks are uploaded to the bucket, where other clients find them.
    let point = mount.path().to_str().unwrap().to_owned();
    let mut flush = ours();
    flush.args(["umount", "--flush", &point]);
    run(flush, PATIENCE).ok();
    mount.ended();
    let other = fixture.mount_by(Client::Go, &[]);
    check(&other, &synced);
    drop(other);
    fixture.go.run("fsck", &[]).ok();
}

fn create(root: &File, name: &str) -> std::io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    Ok(File::from(rustix::fs::openat(root, name, flags, Mode::from_raw_mode(0o644))?))
}

fn check(mount: &Mounted, synced: &[u64]) {
    for seed in synced {
        let found = fs::read(mount.at(format!("f{seed}"))).unwrap();
        let expected = bytes(*seed, 40 * KIB + seed % 7000);
        assert!(found.len() >= expected.len(), "f{seed} is too short: {}", found.len());
        assert_same(&found[..expected.len()], &expected);
    }
}

fn locks_and_files_of_a_killed_mount_are_released(fixture: &Fixture) {
    fixture.format(&[]);
    let dying = fixture.mount(&["--heartbeat", "1"]);
    let (flocked, ranged, removed) =
        (open(dying.at("flock")), open(dying.at("range")), open(dying.at("removed")));
    flocked.lock().unwrap();
    posix(&ranged, Kind::Write, 0, 0).unwrap();
    removed.write_all_at(&bytes(1, 100 * KIB), 0).unwrap();
    removed.sync_all().unwrap();
    fs::remove_file(dying.at("removed")).unwrap();
    let sessions = || fixture.go.status()["Sessions"].as_array().map_or(0, Vec::len);
    assert_eq!(sessions(), 1);
    assert_eq!(fixture.go.dump()["Sustained"].as_array().map_or(0, Vec::len), 1);
    dying.kill();
    drop((flocked, ranged, removed));
    // The session stays, until another client finds that it stopped.
    let mount = fixture.mount_with_jobs(&["--heartbeat", "1"]);
    eventually("the old session is gone", || sessions() == 1);
    let file = open(mount.at("flock"));
    eventually("the flock is free", || file.try_lock().is_ok());
    let mut process = Process::locking(&mount.at("range"), Kind::Write, 0, 0);
    process.says("locked");
    drop(process);
    eventually("the removed file is gone", || {
        fixture.go.dump()["Sustained"].as_array().map_or(0, Vec::len) == 0
    });
}
