//! Passwords are seen by nobody: not in the process table, the log, the virtual files or metrics.

use std::fs;

use super::rig::{Rig, config, ended, pid, signal};
use super::support::redis::RedisServer;
use super::support::timeout::{MOUNTED, within};

const PASSWORD: &str = "sesame-street";

/// A server that wants a password, with a volume.
fn guarded(rig: &Rig) -> (RedisServer, String) {
    let server = RedisServer::start();
    server.ask(&format!("CONFIG SET requirepass {PASSWORD}"));
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{}/0", server.port());
    rig.format(&url, &["--access-key", "me", "--secret-key", "open-it"]);
    (server, url)
}

#[track_caller]
fn assert_hidden(rig: &Rig, pid: u32) {
    let point = rig.point();
    let page = config(&point)["Port"]["PrometheusAgent"].as_str().unwrap().to_owned();
    for (what, text) in [
        ("arguments", fs::read(format!("/proc/{pid}/cmdline")).unwrap()),
        ("environment", fs::read(format!("/proc/{pid}/environ")).unwrap()),
        ("log", rig.log().into_bytes()),
        (".config", fs::read(point.join(".config")).unwrap()),
        (".stats", fs::read(point.join(".stats")).unwrap()),
        ("metrics", super::metrics::page(&page).into_bytes()),
    ] {
        let text = String::from_utf8_lossy(&text);
        for secret in [PASSWORD, "open-it"] {
            assert!(!text.contains(secret), "{secret} is in the {what}:\n{text}");
        }
    }
}

#[test]
fn a_password_in_the_address_is_hidden_in_the_background() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let (_server, url) = guarded(&rig);
        let mounted = rig.mount(&["-v", &url, "mnt"]).ok();
        assert!(!mounted.stderr.contains(PASSWORD), "{mounted}");
        let pid = pid(&rig.point());
        assert_hidden(&rig, pid);
        let shown = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(shown.contains("redis://:****@"), "{shown}");
        rig.unmount();
    });
}

#[test]
fn a_password_in_the_address_is_hidden_in_the_foreground() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let (_server, url) = guarded(&rig);
        let mut child = rig.serve(&["-v", &url, "mnt"]);
        // The same process: whoever started it knows it by its number.
        assert_eq!(pid(&rig.point()), child.id());
        assert_hidden(&rig, child.id());
        signal(&child, "TERM");
        assert_eq!(ended(&mut child), 0, "{}", rig.log());
    });
}

#[test]
fn a_password_may_come_by_the_environment() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let (server, _) = guarded(&rig);
        let url = server.url(0);
        let refused = rig.mount(&[&url, "mnt"]).refused();
        assert!(refused.stderr.contains("127.0.0.1"), "{refused}");
        let mut command = rig.command(&["mount", "--cache-dir", "cache", &url, "mnt"]);
        command.env("META_PASSWORD", PASSWORD);
        let mut child = rig.spawn(command);
        assert!(!rig.log().contains(PASSWORD));
        signal(&child, "TERM");
        assert_eq!(ended(&mut child), 0, "{}", rig.log());
    });
}
