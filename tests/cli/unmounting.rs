//! `umount`: whoever serves the mount, and whether or not it still answers.

use std::fs;
use std::path::Path;

use super::rig::{LIMIT, Rig, code, config, pid};
use super::support::command::{poll, run};
use super::support::juicefs::Volume;
use super::support::mount::is_mounted;
use super::support::timeout::{MOUNTED, within};

#[test]
fn a_mount_in_use_names_who_uses_it() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.mount(&["mnt"]).ok();
        let file = fs::File::create(rig.point().join("file")).unwrap();
        let busy = rig.run(&["umount", "mnt"]);
        assert_eq!(code(&busy), 6, "{busy}");
        let us = format!("process {} ", std::process::id());
        assert!(busy.stderr.contains(&us) && busy.stderr.contains("--force"), "{busy}");
        assert!(is_mounted(&rig.point()));
        drop(file);
        rig.unmount();
    });
}

#[test]
fn by_force_it_is_out_of_sight_at_once_and_loses_nothing() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.mount(&["mnt"]).ok();
        let pid = pid(&rig.point());
        let mut file = fs::File::create(rig.point().join("file")).unwrap();
        rig.run(&["umount", "--force", "mnt"]).ok();
        assert!(!is_mounted(&rig.point()));
        std::io::Write::write_all(&mut file, b"still here").unwrap();
        drop(file);
        let gone = || !Path::new(&format!("/proc/{pid}")).exists();
        assert!(poll(LIMIT, gone), "{}", rig.log());
        rig.mount(&["mnt"]).ok();
        assert_eq!(fs::read_to_string(rig.point().join("file")).unwrap(), "still here");
        rig.unmount();
    });
}

#[test]
fn a_dead_mount_is_taken_down() {
    within(MOUNTED, || {
        let rig = Rig::new();
        for words in [&["umount", "mnt"][..], &["umount", "-f", "mnt"]] {
            rig.mount(&["mnt"]).ok();
            let mut kill = std::process::Command::new("kill");
            kill.args(["-KILL", &pid(&rig.point()).to_string()]);
            run(kill, LIMIT).ok();
            assert!(poll(LIMIT, || fs::read_dir(rig.point()).is_err()), "the mount is not dead");
            rig.run(words).ok();
            assert!(!is_mounted(&rig.point()));
        }
    });
}

#[test]
fn what_is_no_volume_is_left_alone() {
    within(MOUNTED, || {
        let rig = Rig::new();
        fs::create_dir(rig.point()).unwrap();
        for (place, word) in [("mnt", "nothing is mounted"), ("/proc", "not a volume")] {
            let refused = rig.run(&["umount", place]);
            assert_eq!(code(&refused), 1, "{refused}");
            assert!(refused.stderr.contains(word), "{refused}");
        }
    });
}

#[test]
fn flushing_waits_until_everything_is_uploaded() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let url = rig.redis_volume(&[]);
        // Nothing would be uploaded by itself in the time of the test.
        rig.mount(&["--writeback", "--upload-delay", "1h", &url, "mnt"]).ok();
        fs::write(rig.point().join("file"), vec![7; 300_000]).unwrap();
        let shown = config(&rig.point());
        let staging = Path::new(shown["Chunk"]["CacheDir"].as_str().unwrap()).join("rawstaging");
        assert_eq!(files(&staging), 1, "nothing is staged");
        assert_eq!(files(&rig.path("bucket/vol/chunks")), 0, "it was uploaded at once");
        rig.run(&["umount", "--flush", "mnt"]).ok();
        assert!(!is_mounted(&rig.point()));
        assert_eq!((files(&staging), files(&rig.path("bucket/vol/chunks"))), (0, 1));
    });
}

#[test]
fn a_mount_of_the_go_client_is_unmounted_too() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let url = rig.redis_volume(&[]);
        let mount = Volume::existing(&url).mount(&["--writeback", "--upload-delay", "2s"]);
        fs::write(mount.path().join("file"), "content").unwrap();
        rig.run(&["umount", "--flush", mount.path().to_str().unwrap()]).ok();
        assert!(!is_mounted(mount.path()));
        assert_eq!(files(&rig.path("bucket/vol/chunks")), 1);
    });
}

/// Files below a directory.
fn files(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let entries = entries.flatten().map(|entry| entry.path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}
