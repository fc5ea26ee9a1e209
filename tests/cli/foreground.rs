//! A mount in the foreground: signals, exit statuses and notifications.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::fixture::{CliFixture, LIMIT, exit_code, signal};
use super::support::command::{poll, run};
use super::support::mount::is_mounted;
use super::support::redis::RedisServer;
use super::support::timeout::{MOUNTED, within};

#[test]
fn a_signal_unmounts_and_stores_written_data() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        for name in ["TERM", "INT", "HUP"] {
            let mut child = fixture.serve(&["mnt"]);
            let path = fixture.point().join(name);
            let mut file = fs::File::create(&path).unwrap();
            // Neither closed nor synced.
            file.write_all(&vec![b'x'; 3 << 20]).unwrap();
            signal(&child, name);
            assert_eq!(exit_code(&mut child), 0, "{}", fixture.log());
            assert!(!is_mounted(&fixture.point()));
            drop(file);

            let mut child = fixture.serve(&["mnt"]);
            assert_eq!(fs::read(&path).unwrap(), vec![b'x'; 3 << 20], "{name}");
            signal(&child, "TERM");
            assert_eq!(exit_code(&mut child), 0);
        }
    });
}

#[test]
fn the_process_exits_when_the_volume_is_unmounted() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let mut child = fixture.serve(&["mnt"]);
        let mut umount = std::process::Command::new("umount");
        umount.arg(fixture.point());
        run(umount, LIMIT).ok();
        assert_eq!(exit_code(&mut child), 0, "{}", fixture.log());
        let status = fixture
            .run(&["status", &format!("sqlite3://{}", fixture.path("data/meta.db").display())]);
        let status: serde_json::Value = serde_json::from_str(&status.ok().stdout).unwrap();
        assert_eq!(
            status["Sessions"].as_array().map(Vec::len),
            Some(0),
            "the session was left behind"
        );
    });
}

#[test]
fn an_aborted_connection_has_its_own_exit_status() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let mut child = fixture.serve(&["mnt"]);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let point = fixture.point().display().to_string();
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&point)).unwrap();
        let minor = line.split(' ').nth(2).unwrap().split_once(':').unwrap().1;
        fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1").unwrap();
        assert_eq!(exit_code(&mut child), 4, "{}", fixture.log());
    });
}

#[test]
fn a_deleted_volume_has_its_own_exit_status() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let server = RedisServer::start();
        fixture.format(&server.url(0), &[]);
        let mut child = fixture.serve(&["--heartbeat", "1", &server.url(0), "mnt"]);
        server.ask("FLUSHALL");
        assert_eq!(exit_code(&mut child), 5, "{}", fixture.log());
        assert!(!is_mounted(&fixture.point()));
    });
}

#[test]
fn a_second_signal_exits_without_storing() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let server = RedisServer::start();
        fixture.format(&server.url(0), &[]);
        let mut child = fixture.serve(&[&server.url(0), "mnt"]);
        let mut file = fs::File::create(fixture.point().join("file")).unwrap();
        server.ask("CLIENT PAUSE 100000 WRITE");
        file.write_all(b"never stored").unwrap();
        signal(&child, "TERM");
        assert!(poll(LIMIT, || !is_mounted(&fixture.point())), "{}", fixture.log());
        assert!(child.try_wait().unwrap().is_none(), "it did not wait:\n{}", fixture.log());
        signal(&child, "TERM");
        assert_eq!(exit_code(&mut child), 3, "{}", fixture.log());
    });
}

#[test]
fn the_service_manager_is_notified() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let socket = UnixDatagram::bind(fixture.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut command = fixture.command(&["mount", "--cache-dir", "cache", "mnt"]);
        command.env("NOTIFY_SOCKET", fixture.path("notify"));
        let mut child = fixture.spawn(command);
        let mut text = [0; 64];
        let mut next = || {
            let length = socket.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        assert_eq!(next(), "READY=1");
        signal(&child, "TERM");
        assert_eq!(next(), "STOPPING=1");
        assert_eq!(exit_code(&mut child), 0);
    });
}

#[test]
fn a_read_only_mount_refuses_changes() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fixture.mount(&["mnt"]).ok();
        fs::write(fixture.point().join("file"), "content").unwrap();
        fixture.unmount();
        for options in [&["--read-only"][..], &["-o", "ro"]] {
            let mut child = fixture.serve(&[options, &["mnt"]].concat());
            let mut text = String::new();
            let mut file = fs::File::open(fixture.point().join("file")).unwrap();
            file.read_to_string(&mut text).unwrap();
            drop(file);
            assert_eq!(text, "content");
            assert!(fs::write(fixture.point().join("other"), "").is_err());
            signal(&child, "TERM");
            assert_eq!(exit_code(&mut child), 0, "{}", fixture.log());
        }
    });
}
