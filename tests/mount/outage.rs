//! The metadata server is down for a while: operations wait and continue, or fail and do no harm.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::fixture::{KIB, assert_same, bytes, names, open, refused};
use crate::support::fixture::{Fixture, eventually};
use crate::support::redis::RedisServer;
use crate::support::timeout::within;

const LIMIT: Duration = Duration::from_mins(4);

#[test]
fn operations_wait_for_a_server_that_comes_back() {
    within(LIMIT, || {
        let mut redis = RedisServer::start();
        let fixture = Fixture::at(&redis.url(0));
        fixture.format(&[]);
        let mount = fixture.mount(&["--io-retries", "30"]);
        // It logs that the server is down.
        mount.expect("");
        let over = AtomicBool::new(false);
        let done: Vec<u64> = thread::scope(|scope| {
            let workers: Vec<_> = (0..3_u64)
                .map(|worker| {
                    let (point, over) = (mount.path(), &over);
                    scope.spawn(move || {
                        let mut done = 0;
                        while !over.load(Ordering::Relaxed) {
                            work(point, worker, done).unwrap();
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            for _ in 0..2 {
                thread::sleep(Duration::from_secs(1));
                redis.stop();
                thread::sleep(Duration::from_secs(2));
                redis.restart();
            }
            thread::sleep(Duration::from_secs(1));
            over.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        for (worker, count) in (0..).zip(&done) {
            assert!(*count > 0, "worker {worker} did nothing");
            assert_eq!(names(mount.at(format!("w{worker}"))).len() as u64, *count);
            for n in 0..*count {
                let found = fs::read(mount.at(format!("w{worker}/f{n}"))).unwrap();
                assert_same(&found, &bytes(worker * 10_000 + n, 20 * KIB + n));
            }
        }
        drop(mount);
        fixture.check();
    });
}

/// Creates a directory and a file in it, renames and reads it.
fn work(point: &Path, worker: u64, n: u64) -> io::Result<()> {
    let dir = point.join(format!("w{worker}"));
    if n == 0 {
        fs::create_dir(&dir)?;
    }
    let (made, kept) = (dir.join(format!("new{n}")), dir.join(format!("f{n}")));
    let content = bytes(worker * 10_000 + n, 20 * KIB + n);
    let file = open(&made);
    file.write_all_at(&content, 0)?;
    // Closing alone would not report an error.
    file.sync_all()?;
    drop(file);
    fs::rename(&made, &kept)?;
    assert_same(&fs::read(&kept)?, &content);
    Ok(())
}

#[test]
fn operations_fail_when_the_server_stays_away_and_work_when_it_is_back() {
    within(LIMIT, || {
        let mut redis = RedisServer::start();
        let fixture = Fixture::at(&redis.url(0));
        fixture.format(&[]);
        let mount = fixture.mount(&["--io-retries", "1"]);
        mount.expect("");
        fs::write(mount.at("f"), "before").unwrap();
        let file = open(mount.at("g"));
        redis.stop();
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(refused(fs::create_dir(mount.at("d"))), Errno::IO);
        assert_eq!(refused(fs::metadata(mount.at("nothing"))), Errno::IO);
        assert_eq!(refused(fs::rename(mount.at("f"), mount.at("h"))), Errno::IO);
        let write = io::Write::write_all(&mut &file, b"text").and_then(|()| file.sync_all());
        assert_eq!(refused(write), Errno::IO);
        drop(file);
        redis.restart();
        eventually("it works again", || fs::create_dir(mount.at("e")).is_ok());
        assert_eq!(fs::read(mount.at("f")).unwrap(), b"before");
        // None of the refused operations was done.
        assert_eq!(names(mount.path()), ["e", "f", "g"]);
        fs::write(mount.at("g"), "again").unwrap();
        assert_eq!(fs::read(mount.at("g")).unwrap(), b"again");
        drop(mount);
        // An object whose record was refused belongs to no file, and does no harm.
        fixture.go.run("fsck", &[]).ok();
    });
}
