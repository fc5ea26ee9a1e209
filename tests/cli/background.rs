//! `mount -d`: returns once the volume is mounted, or reports why it is not.

use std::fs;
use std::thread;

use super::fixture::{CliFixture, LIMIT, config, exit_status, pid, test_processes};
use super::support::command::{poll, run};
use super::support::mount::is_mounted;
use super::support::timeout::{MOUNTED, within};

#[test]
fn the_embedded_volume_is_created_at_first_use_and_reused() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let point = fixture.point();
        let first = fixture.mount(&[point.to_str().unwrap()]).ok();
        assert!(is_mounted(&point), "{first}");
        let data = fixture.path("data").display().to_string();
        assert!(first.stderr.contains(&data) && first.stderr.contains("new"), "{first}");
        assert!(fixture.log().contains("meta.db"), "{}", fixture.log());
        fs::write(point.join("file"), "content").unwrap();
        fixture.unmount();
        assert!(!is_mounted(&point));
        assert!(test_processes(&fixture.path("")).is_empty(), "the process still runs");

        let again = fixture.mount(&[point.to_str().unwrap()]).ok();
        assert!(!again.stderr.contains("new"), "{again}");
        assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "content");
        fixture.unmount();
    });
}

#[test]
fn a_failed_mount_reports_why_and_leaves_nothing_behind() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let point = fixture.point().display().to_string();
        fs::write(fixture.path("file"), "").unwrap();
        let file = fixture.path("file").display().to_string();
        for (words, word) in [
            // No server listens on this port.
            (&["redis://127.0.0.1:1/0", point.as_str()][..], "127.0.0.1:1"),
            (&["sqlite3://none.db", &point], "format"),
            (&["nonsense://host/1", &point], "nonsense"),
            (&[&file], &file),
            (&["/"], "root directory"),
            (&["--subdir", "../up", &point], "--subdir"),
        ] {
            let failed = fixture.mount(words);
            assert_eq!(exit_status(&failed), 1, "{failed}");
            assert!(failed.stderr.contains(word), "no {word} in {failed}");
            assert!(!is_mounted(&fixture.point()));
            let gone = poll(LIMIT, || test_processes(&fixture.path("")).is_empty());
            assert!(gone, "{words:?}: the process still runs");
        }
    });
}

#[test]
fn a_log_that_cannot_be_written_is_an_error() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let failed = fixture.run(&["mount", "-d", "--log", "/proc/none/log", "mnt"]);
        assert_eq!(exit_status(&failed), 1, "{failed}");
        assert!(
            failed.stderr.contains("--log") && failed.stderr.contains("/proc/none"),
            "{failed}"
        );
        assert!(!is_mounted(&fixture.point()));
    });
}

#[test]
fn paths_may_be_relative() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fixture.format("sqlite3://my.db", &[]);
        fixture.mount(&["sqlite3://my.db", "mnt"]).ok();
        fs::write(fixture.point().join("file"), "content").unwrap();
        let pid = pid(&fixture.point());
        // The process must not keep the caller's directory busy.
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(cwd.to_str(), Some("/"));
        assert!(fixture.path("cache").is_dir() && fixture.path("log").is_file());
        fixture.unmount();
    });
}

#[test]
fn processes_that_start_together_create_one_volume() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let points: Vec<_> = (0..4).map(|number| fixture.path(&format!("mnt{number}"))).collect();
        thread::scope(|scope| {
            for (number, point) in points.iter().enumerate() {
                let log = format!("log{number}");
                let point = point.display().to_string();
                let command =
                    fixture.command(&["mount", "-d", "--log", &log, "--cache-size", "0", &point]);
                scope.spawn(move || run(command, LIMIT).ok());
            }
        });
        let volumes: Vec<_> =
            points.iter().map(|point| config(point)["Format"]["UUID"].clone()).collect();
        assert!(volumes.iter().all(|uuid| *uuid == volumes[0]), "{volumes:?}");
        fs::write(points[0].join("file"), "content").unwrap();
        assert_eq!(fs::read_to_string(points[3].join("file")).unwrap(), "content");
        for point in &points {
            fixture.run(&["umount", point.to_str().unwrap()]).ok();
        }
    });
}

#[test]
fn a_dead_mount_is_replaced() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let point = fixture.point().display().to_string();
        fixture.mount(&[&point]).ok();
        let occupied = fixture.mount(&[&point]);
        assert!(exit_status(&occupied) == 1 && occupied.stderr.contains("umount"), "{occupied}");
        let mut kill = std::process::Command::new("kill");
        kill.args(["-KILL", &pid(&fixture.point()).to_string()]);
        run(kill, LIMIT).ok();
        assert!(poll(LIMIT, || fs::read_dir(fixture.point()).is_err()), "the mount is not dead");
        fixture.mount(&[&point]).ok();
        assert!(fs::read_dir(fixture.point()).is_ok());
        fixture.unmount();
    });
}
