//! A client with few file descriptors: perhaps slower, but it works.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::fs::{Advice, fadvise};

use crate::fixture::{KIB, assert_same, bytes};
use crate::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use crate::support::fixture::Fixture;
use crate::support::mount::Mount;
use crate::support::timeout::{MOUNTED, within};

const FILES: u64 = 320;
const READERS: usize = 64;

#[test]
fn many_files_are_read_at_once_within_256_descriptors() {
    within(MOUNTED, || {
        let fixture = Fixture::redis();
        let server = S3Server::start();
        let bucket = server.bucket("bucket");
        let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
        let place = ["volume", "--storage", "s3", "--bucket", &bucket];
        fixture.tool("format", &[&place[..], &keys, &["--trash-days", "0"]].concat()).ok();
        let mount = fixture.mount(&[]);
        for file in 0..FILES {
            fs::write(mount.at(format!("f{file}")), bytes(file, 40 * KIB)).unwrap();
        }
        drop(mount);

        let point = fixture.folder().join("few");
        let mut command = Command::new("prlimit");
        command.args(["--nofile=256:256", env!("CARGO_BIN_EXE_jfs-mount"), "mount", "--no-bgjob"]);
        command.arg("--cache-dir").arg(fixture.folder().join("few.cache"));
        command.env("NO_COLOR", "1").env("AWS_EC2_METADATA_DISABLED", "true");
        command.arg(fixture.url()).arg(&point);
        let mount = Mount::start(command, &point, &point.with_extension("log"));
        // From the bucket, and then from the cache files.
        for _ in 0..2 {
            read_all(mount.path());
        }
        let log = mount.log();
        assert!(!log.contains("Too many open files"), "{log}");
        mount.unmount();
    });
}

fn read_all(point: &Path) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                loop {
                    let file = next.fetch_add(1, Ordering::Relaxed);
                    if file >= FILES {
                        return;
                    }
                    let mut opened = File::open(point.join(format!("f{file}"))).unwrap();
                    let mut found = Vec::new();
                    opened.read_to_end(&mut found).unwrap();
                    assert_same(&found, &bytes(file, 40 * KIB));
                    // The kernel asks again next time.
                    fadvise(&opened, 0, None, Advice::DontNeed).unwrap();
                }
            });
        }
    });
}
