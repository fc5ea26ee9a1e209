//! `mount -d`: it returns when the volume is mounted, or says why it is not.

use std::fs;
use std::thread;

use super::rig::{LIMIT, Rig, code, config, pid, serving};
use super::support::command::{poll, run};
use super::support::mount::is_mounted;
use super::support::timeout::{MOUNTED, within};

#[test]
fn the_embedded_volume_is_made_at_first_use_and_found_again() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point();
        let first = rig.mount(&[point.to_str().unwrap()]).ok();
        assert!(is_mounted(&point), "{first}");
        let data = rig.path("data").display().to_string();
        assert!(first.stderr.contains(&data) && first.stderr.contains("new"), "{first}");
        assert!(rig.log().contains("meta.db"), "{}", rig.log());
        fs::write(point.join("file"), "content").unwrap();
        rig.unmount();
        assert!(!is_mounted(&point));
        assert!(serving(&rig.path("")).is_empty(), "the process is still there");

        let again = rig.mount(&[point.to_str().unwrap()]).ok();
        assert!(!again.stderr.contains("new"), "{again}");
        assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "content");
        rig.unmount();
    });
}

#[test]
fn a_mount_that_fails_says_why_and_leaves_nothing() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point().display().to_string();
        fs::write(rig.path("file"), "").unwrap();
        let file = rig.path("file").display().to_string();
        for (words, word) in [
            // No server is at this port.
            (&["redis://127.0.0.1:1/0", point.as_str()][..], "127.0.0.1:1"),
            (&["sqlite3://none.db", &point], "format"),
            (&["nonsense://host/1", &point], "nonsense"),
            (&[&file], &file),
            (&["/"], "root directory"),
            (&["--subdir", "../up", &point], "--subdir"),
        ] {
            let failed = rig.mount(words);
            assert_eq!(code(&failed), 1, "{failed}");
            assert!(failed.stderr.contains(word), "no {word} in {failed}");
            assert!(!is_mounted(&rig.point()));
            let gone = poll(LIMIT, || serving(&rig.path("")).is_empty());
            assert!(gone, "{words:?}: the process is still there");
        }
    });
}

#[test]
fn a_log_that_cannot_be_written_is_an_error() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let failed = rig.run(&["mount", "-d", "--log", "/proc/none/log", "mnt"]);
        assert_eq!(code(&failed), 1, "{failed}");
        assert!(
            failed.stderr.contains("--log") && failed.stderr.contains("/proc/none"),
            "{failed}"
        );
        assert!(!is_mounted(&rig.point()));
    });
}

#[test]
fn paths_may_be_relative() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.format("sqlite3://my.db", &[]);
        rig.mount(&["sqlite3://my.db", "mnt"]).ok();
        fs::write(rig.point().join("file"), "content").unwrap();
        let pid = pid(&rig.point());
        // It keeps no directory of the caller busy.
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(cwd.to_str(), Some("/"));
        assert!(rig.path("cache").is_dir() && rig.path("log").is_file());
        rig.unmount();
    });
}

#[test]
fn processes_that_start_together_make_one_volume() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let points: Vec<_> = (0..4).map(|number| rig.path(&format!("mnt{number}"))).collect();
        thread::scope(|scope| {
            for (number, point) in points.iter().enumerate() {
                let log = format!("log{number}");
                let point = point.display().to_string();
                let command =
                    rig.command(&["mount", "-d", "--log", &log, "--cache-size", "0", &point]);
                scope.spawn(move || run(command, LIMIT).ok());
            }
        });
        let volumes: Vec<_> =
            points.iter().map(|point| config(point)["Format"]["UUID"].clone()).collect();
        assert!(volumes.iter().all(|uuid| *uuid == volumes[0]), "{volumes:?}");
        fs::write(points[0].join("file"), "content").unwrap();
        assert_eq!(fs::read_to_string(points[3].join("file")).unwrap(), "content");
        for point in &points {
            rig.run(&["umount", point.to_str().unwrap()]).ok();
        }
    });
}

#[test]
fn what_is_left_of_a_dead_mount_does_not_stand_in_the_way() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point().display().to_string();
        rig.mount(&[&point]).ok();
        let occupied = rig.mount(&[&point]);
        assert!(code(&occupied) == 1 && occupied.stderr.contains("umount"), "{occupied}");
        let mut kill = std::process::Command::new("kill");
        kill.args(["-KILL", &pid(&rig.point()).to_string()]);
        run(kill, LIMIT).ok();
        assert!(poll(LIMIT, || fs::read_dir(rig.point()).is_err()), "the mount is not dead");
        rig.mount(&[&point]).ok();
        assert!(fs::read_dir(rig.point()).is_ok());
        rig.unmount();
    });
}
