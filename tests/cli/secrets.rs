//! Passwords do not appear in the process table, the log, the virtual files or metrics.

use std::fs;

use super::fixture::{CliFixture, config, exit_code, pid, signal};
use super::support::redis::RedisServer;
use super::support::timeout::{MOUNTED, within};

const PASSWORD: &str = "sesame-street";

/// Starts a server that requires a password, and formats a volume there.
fn start_with_password(fixture: &CliFixture) -> (RedisServer, String) {
    let server = RedisServer::start();
    server.ask(&format!("CONFIG SET requirepass {PASSWORD}"));
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{}/0", server.port());
    fixture.format(&url, &["--access-key", "me", "--secret-key", "open-it"]);
    (server, url)
}

#[track_caller]
fn assert_no_secrets(fixture: &CliFixture, pid: u32) {
    let point = fixture.point();
    let page = config(&point)["Port"]["PrometheusAgent"].as_str().unwrap().to_owned();
    for (what, text) in [
        ("arguments", fs::read(format!("/proc/{pid}/cmdline")).unwrap()),
        ("environment", fs::read(format!("/proc/{pid}/environ")).unwrap()),
        ("log", fixture.log().into_bytes()),
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
fn a_password_in_the_url_is_hidden_in_the_background() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let (_server, url) = start_with_password(&fixture);
        let mounted = fixture.mount(&["-v", &url, "mnt"]).ok();
        assert!(!mounted.stderr.contains(PASSWORD), "{mounted}");
        let pid = pid(&fixture.point());
        assert_no_secrets(&fixture, pid);
        let shown = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(shown.contains("redis://:****@"), "{shown}");
        fixture.unmount();
    });
}

#[test]
fn a_password_in_the_url_is_hidden_in_the_foreground() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let (_server, url) = start_with_password(&fixture);
        let mut child = fixture.serve(&["-v", &url, "mnt"]);
        // The same PID: the process that started it relies on it.
        assert_eq!(pid(&fixture.point()), child.id());
        assert_no_secrets(&fixture, child.id());
        signal(&child, "TERM");
        assert_eq!(exit_code(&mut child), 0, "{}", fixture.log());
    });
}

#[test]
fn a_password_may_come_from_the_environment() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let (server, _) = start_with_password(&fixture);
        let url = server.url(0);
        let refused = fixture.mount(&[&url, "mnt"]).refused();
        assert!(refused.stderr.contains("127.0.0.1"), "{refused}");
        let mut command = fixture.command(&["mount", "--cache-dir", "cache", &url, "mnt"]);
        command.env("META_PASSWORD", PASSWORD);
        let mut child = fixture.spawn(command);
        assert!(!fixture.log().contains(PASSWORD));
        signal(&child, "TERM");
        assert_eq!(exit_code(&mut child), 0, "{}", fixture.log());
    });
}
