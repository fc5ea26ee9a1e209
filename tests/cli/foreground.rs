//! A mount in the foreground: how it is told to end, and how it says what happened.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::rig::{LIMIT, Rig, ended, signal};
use super::support::command::{poll, run};
use super::support::mount::is_mounted;
use super::support::redis::RedisServer;
use super::support::timeout::{MOUNTED, within};

#[test]
fn a_signal_ends_it_cleanly_and_what_was_written_is_stored() {
    within(MOUNTED, || {
        let rig = Rig::new();
        for name in ["TERM", "INT", "HUP"] {
            let mut child = rig.serve(&["mnt"]);
            let path = rig.point().join(name);
            let mut file = fs::File::create(&path).unwrap();
            // Neither closed nor synchronised.
            file.write_all(&vec![b'x'; 3 << 20]).unwrap();
            signal(&child, name);
            assert_eq!(ended(&mut child), 0, "{}", rig.log());
            assert!(!is_mounted(&rig.point()));
            drop(file);

            let mut child = rig.serve(&["mnt"]);
            assert_eq!(fs::read(&path).unwrap(), vec![b'x'; 3 << 20], "{name}");
            signal(&child, "TERM");
            assert_eq!(ended(&mut child), 0);
        }
    });
}

#[test]
fn unmounting_ends_it() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let mut child = rig.serve(&["mnt"]);
        let mut umount = std::process::Command::new("umount");
        umount.arg(rig.point());
        run(umount, LIMIT).ok();
        assert_eq!(ended(&mut child), 0, "{}", rig.log());
        let status =
            rig.run(&["status", &format!("sqlite3://{}", rig.path("data/meta.db").display())]);
        let status: serde_json::Value = serde_json::from_str(&status.ok().stdout).unwrap();
        assert_eq!(status["Sessions"].as_array().map(Vec::len), Some(0), "the session is left");
    });
}

#[test]
fn a_connection_that_is_cut_shows_in_how_it_ends() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let mut child = rig.serve(&["mnt"]);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let point = rig.point().display().to_string();
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&point)).unwrap();
        let minor = line.split(' ').nth(2).unwrap().split_once(':').unwrap().1;
        fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1").unwrap();
        assert_eq!(ended(&mut child), 4, "{}", rig.log());
    });
}

#[test]
fn a_volume_that_is_gone_shows_in_how_it_ends() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let server = RedisServer::start();
        rig.format(&server.url(0), &[]);
        let mut child = rig.serve(&["--heartbeat", "1", &server.url(0), "mnt"]);
        server.ask("FLUSHALL");
        assert_eq!(ended(&mut child), 5, "{}", rig.log());
        assert!(!is_mounted(&rig.point()));
    });
}

#[test]
fn a_second_signal_ends_what_cannot_be_stored() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let server = RedisServer::start();
        rig.format(&server.url(0), &[]);
        let mut child = rig.serve(&[&server.url(0), "mnt"]);
        let mut file = fs::File::create(rig.point().join("file")).unwrap();
        server.ask("CLIENT PAUSE 100000 WRITE");
        file.write_all(b"never stored").unwrap();
        signal(&child, "TERM");
        assert!(poll(LIMIT, || !is_mounted(&rig.point())), "{}", rig.log());
        assert!(child.try_wait().unwrap().is_none(), "it did not wait:\n{}", rig.log());
        signal(&child, "TERM");
        assert_eq!(ended(&mut child), 3, "{}", rig.log());
    });
}

#[test]
fn the_service_manager_is_told() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let socket = UnixDatagram::bind(rig.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut command = rig.command(&["mount", "--cache-dir", "cache", "mnt"]);
        command.env("NOTIFY_SOCKET", rig.path("notify"));
        let mut child = rig.spawn(command);
        let mut text = [0; 64];
        let mut next = || {
            let length = socket.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        assert_eq!(next(), "READY=1");
        signal(&child, "TERM");
        assert_eq!(next(), "STOPPING=1");
        assert_eq!(ended(&mut child), 0);
    });
}

#[test]
fn a_read_only_mount_takes_no_changes() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.mount(&["mnt"]).ok();
        fs::write(rig.point().join("file"), "content").unwrap();
        rig.unmount();
        for options in [&["--read-only"][..], &["-o", "ro"]] {
            let mut child = rig.serve(&[options, &["mnt"]].concat());
            let mut text = String::new();
            let mut file = fs::File::open(rig.point().join("file")).unwrap();
            file.read_to_string(&mut text).unwrap();
            drop(file);
            assert_eq!(text, "content");
            assert!(fs::write(rig.point().join("other"), "").is_err());
            signal(&child, "TERM");
            assert_eq!(ended(&mut child), 0, "{}", rig.log());
        }
    });
}
