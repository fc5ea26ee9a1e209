//! `umount`: of mounts of either client, whether or not they respond.

use std::fs;
use std::path::Path;

use super::fixture::{CliFixture, LIMIT, config, exit_status, pid};
use super::support::command::{poll, run};
use super::support::juicefs::Volume;
use super::support::mount::is_mounted;
use super::support::timeout::{MOUNTED, within};

#[test]
fn the_processes_that_use_a_mount_are_named() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fixture.mount(&["mnt"]).ok();
        let file = fs::File::create(fixture.point().join("file")).unwrap();
        let busy = fixture.run(&["umount", "mnt"]);
        assert_eq!(exit_status(&busy), 6, "{busy}");
        let us = format!("process {} ", std::process::id());
        assert!(busy.stderr.contains(&us) && busy.stderr.contains("--force"), "{busy}");
        assert!(is_mounted(&fixture.point()));
        drop(file);
        fixture.unmount();
    });
}

#[test]
fn a_forced_unmount_is_immediate_and_loses_nothing() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fixture.mount(&["mnt"]).ok();
        let pid = pid(&fixture.point());
        let mut file = fs::File::create(fixture.point().join("file")).unwrap();
        fixture.run(&["umount", "--force", "mnt"]).ok();
        assert!(!is_mounted(&fixture.point()));
        std::io::Write::write_all(&mut file, b"still here").unwrap();
        drop(file);
        let gone = || !Path::new(&format!("/proc/{pid}")).exists();
        assert!(poll(LIMIT, gone), "{}", fixture.log());
        fixture.mount(&["mnt"]).ok();
        assert_eq!(fs::read_to_string(fixture.point().join("file")).unwrap(), "still here");
        fixture.unmount();
    });
}

#[test]
fn a_dead_mount_is_unmounted() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        for words in [&["umount", "mnt"][..], &["umount", "-f", "mnt"]] {
            fixture.mount(&["mnt"]).ok();
            let mut kill = std::process::Command::new("kill");
            kill.args(["-KILL", &pid(&fixture.point()).to_string()]);
            run(kill, LIMIT).ok();
            assert!(
                poll(LIMIT, || fs::read_dir(fixture.point()).is_err()),
                "the mount is not dead"
            );
            fixture.run(words).ok();
            assert!(!is_mounted(&fixture.point()));
        }
    });
}

#[test]
fn other_file_systems_are_not_unmounted() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fs::create_dir(fixture.point()).unwrap();
        for (place, word) in [("mnt", "nothing is mounted"), ("/proc", "not a volume")] {
            let refused = fixture.run(&["umount", place]);
            assert_eq!(exit_status(&refused), 1, "{refused}");
            assert!(refused.stderr.contains(word), "{refused}");
        }
    });
}

#[test]
fn flushing_waits_until_everything_is_uploaded() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let url = fixture.redis_volume(&[]);
        // With this delay nothing is uploaded during the test without --flush.
        fixture.mount(&["--writeback", "--upload-delay", "1h", &url, "mnt"]).ok();
        fs::write(fixture.point().join("file"), vec![7; 300_000]).unwrap();
        let shown = config(&fixture.point());
        let staging = Path::new(shown["Chunk"]["CacheDir"].as_str().unwrap()).join("rawstaging");
        assert_eq!(files(&staging), 1, "nothing is staged");
        assert_eq!(files(&fixture.path("bucket/vol/chunks")), 0, "it was uploaded at once");
        fixture.run(&["umount", "--flush", "mnt"]).ok();
        assert!(!is_mounted(&fixture.point()));
        assert_eq!((files(&staging), files(&fixture.path("bucket/vol/chunks"))), (0, 1));
    });
}

#[test]
fn a_mount_of_the_go_client_is_unmounted_too() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let url = fixture.redis_volume(&[]);
        let mount = Volume::existing(&url).mount(&["--writeback", "--upload-delay", "2s"]);
        fs::write(mount.path().join("file"), "content").unwrap();
        fixture.run(&["umount", "--flush", mount.path().to_str().unwrap()]).ok();
        assert!(!is_mounted(mount.path()));
        assert_eq!(files(&fixture.path("bucket/vol/chunks")), 1);
    });
}

/// Counts the files below a directory.
fn files(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let entries = entries.flatten().map(|entry| entry.path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}
