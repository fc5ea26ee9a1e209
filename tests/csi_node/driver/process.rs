//! The process: its HTTP endpoints, its socket, its core limit.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::csi::Node;
use crate::support::command::run;
use crate::support::timeout::{MOUNTED, within};

pub fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn probes_and_the_metrics_of_all_volumes_are_served() {
    within(MOUNTED, || {
        let node = Node::start();
        let health = node.address("/healthz");
        assert!(get(health, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(get(health, "/readyz").starts_with("HTTP/1.1 200"));
        for i in 1..=2 {
            let pv = node
                .publication(&format!("pvc-{i}"), &format!("pod-{i}"))
                .attribute("csi.storage.k8s.io/pod.name", &format!("web-{i}"))
                .attribute("csi.storage.k8s.io/pod.namespace", "team")
                .attribute("csi.storage.k8s.io/pvc/name", "data");
            node.publish(&pv).unwrap();
            fs::write(pv.target.join("f"), "x").unwrap();
            node.publish(&pv).unwrap();
            let log = node.log();
            let lines = log.lines().filter(|line| line.contains(&format!("team/web-{i}")));
            let lines: Vec<&str> = lines.collect();
            assert_eq!(lines.len(), 1, "once, although it was published twice: {log}");
            assert!(lines[0].contains("published") && lines[0].contains("took="), "{}", lines[0]);
        }
        let page = get(node.address("/metrics"), "/metrics");
        let line =
            |words: &[&str]| page.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(
            line(&[
                "juicefs_fuse_written_size_bytes",
                "volume_id=\"pvc-1\"",
                "pod=\"web-1\"",
                "pvc=\"data\""
            ]),
            "{page}"
        );
        assert!(line(&["juicefs_object_request_durations", "vol_name=\"vol\""]), "{page}");
        let types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut once = types.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(types.len(), once.len(), "every metric family occurs once");
    });
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let mut second = Command::new(env!("CARGO_BIN_EXE_jfs-csi"));
        second.args(["--endpoint", &format!("unix://{}", node.path("csi.sock").display())]);
        second.args([
            "--nodeid",
            "n",
            "--http",
            "127.0.0.1:0",
            "--health",
            "127.0.0.1:0",
            "--state-dir",
        ]);
        second.arg(node.path("state2"));
        let refused = run(second, Duration::from_secs(30)).refused();
        let output = refused.stderr + &refused.stdout;
        assert!(output.contains("csi.sock"), "{output}");
        assert!(node.is_ready());
        node.kill();
        node.restart(&[]);
    });
}

#[test]
fn a_driver_that_crashes_leaves_no_core_dump() {
    within(MOUNTED, || {
        let node = Node::start();
        let limits = fs::read_to_string(format!("/proc/{}/limits", node.pid())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let numbers: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
        assert_eq!(numbers, ["0", "0"], "{core}");
    });
}
