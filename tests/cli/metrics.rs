//! Metrics over HTTP, under the names and labels that JuiceFS gives.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::rig::{Rig, config};
use super::support::timeout::{MOUNTED, within};

/// The page at an address.
#[track_caller]
pub fn page(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_mount_shows_what_it_does() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.mount(&["--metrics", "127.0.0.1:0", "--custom-labels", "zone:a", "mnt"]).ok();
        fs::write(rig.point().join("file"), "content").unwrap();
        let shown = config(&rig.point());
        let page = page(shown["Port"]["PrometheusAgent"].as_str().unwrap());
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        for name in
            ["juicefs_uptime", "juicefs_memory", "juicefs_fuse_ops_durations_histogram_seconds"]
        {
            assert!(page.contains(&format!("\n{name}")), "no {name} in {page}");
        }
        let point = rig.point().display().to_string();
        let line = page.lines().find(|line| line.starts_with("juicefs_uptime{")).unwrap();
        for label in [&format!("mp=\"{point}\""), "vol_name=\"local\"", "zone=\"a\"", "instance=\""]
        {
            assert!(line.contains(label), "no {label} in {line}");
        }
        rig.unmount();
    });
}

#[test]
fn a_port_that_is_taken_is_left_alone() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let points = [rig.path("mnt"), rig.path("other")];
        for point in &points {
            rig.mount(&[point.to_str().unwrap()]).ok();
        }
        let agents =
            points.each_ref().map(|point| config(point)["Port"]["PrometheusAgent"].clone());
        assert!(
            agents.iter().all(serde_json::Value::is_string) && agents[0] != agents[1],
            "{agents:?}"
        );
        // One that was chosen is not exchanged for another.
        let third = rig.path("third");
        let taken = agents[0].as_str().unwrap();
        rig.mount(&["--metrics", taken, third.to_str().unwrap()]).ok();
        assert!(config(&third)["Port"]["PrometheusAgent"].is_null());
        assert!(rig.log().contains("no metrics are served"), "{}", rig.log());
        for point in points.iter().chain([&third]) {
            rig.run(&["umount", point.to_str().unwrap()]).ok();
        }
    });
}
