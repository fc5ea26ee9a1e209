//! Metrics over HTTP, with JuiceFS's names and labels.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::fixture::{CliFixture, config};
use super::support::timeout::{MOUNTED, within};

/// Requests the metrics page.
#[track_caller]
pub fn page(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_mount_serves_its_metrics() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fixture.mount(&["--metrics", "127.0.0.1:0", "--custom-labels", "zone:a", "mnt"]).ok();
        fs::write(fixture.point().join("file"), "content").unwrap();
        let shown = config(&fixture.point());
        let page = page(shown["Port"]["PrometheusAgent"].as_str().unwrap());
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        for name in
            ["juicefs_uptime", "juicefs_memory", "juicefs_fuse_ops_durations_histogram_seconds"]
        {
            assert!(page.contains(&format!("\n{name}")), "no {name} in {page}");
        }
        let point = fixture.point().display().to_string();
        let line = page.lines().find(|line| line.starts_with("juicefs_uptime{")).unwrap();
        for label in [&format!("mp=\"{point}\""), "vol_name=\"local\"", "zone=\"a\"", "instance=\""]
        {
            assert!(line.contains(label), "no {label} in {line}");
        }
        fixture.unmount();
    });
}

#[test]
fn another_port_is_used_if_the_default_is_taken() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let points = [fixture.path("mnt"), fixture.path("other")];
        for point in &points {
            fixture.mount(&[point.to_str().unwrap()]).ok();
        }
        let agents =
            points.each_ref().map(|point| config(point)["Port"]["PrometheusAgent"].clone());
        assert!(
            agents.iter().all(serde_json::Value::is_string) && agents[0] != agents[1],
            "{agents:?}"
        );
        // A port given by option is not replaced by another.
        let third = fixture.path("third");
        let taken = agents[0].as_str().unwrap();
        fixture.mount(&["--metrics", taken, third.to_str().unwrap()]).ok();
        assert!(config(&third)["Port"]["PrometheusAgent"].is_null());
        assert!(fixture.log().contains("no metrics are served"), "{}", fixture.log());
        for point in points.iter().chain([&third]) {
            fixture.run(&["umount", point.to_str().unwrap()]).ok();
        }
    });
}
